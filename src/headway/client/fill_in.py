"""What stands at the cursor of an editor: the request that asks for it, and what of a chat's answer is code. Pure.

Models that fill in the middle get text before and after the cursor (`suffix` of a text completion). Others get a chat that
asks for the same; how the cursor is marked and the answer fenced is plain convention.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from headway.client.ask import Ask, ask_chat, ask_completion

MAX_PREFIX_CHARS: Final = 6_000
MAX_SUFFIX_CHARS: Final = 2_000
"""About 2,000 tokens of code together, which a prefix cache holds while somebody types. What is nearest counts most."""
_GRID_CHARS: Final = 2_000
"""Where a long prefix begins moves in steps of this size: what comes before the cursor then has the same beginning from one
key to the next, and a prefix cache has computed it."""
_CURSOR: Final = "<|cursor|>"
_SYSTEM: Final = (
    f"You complete code in an editor. You get a file with {_CURSOR} where the cursor is. Answer with the text that belongs "
    "there, and nothing else: no explanation, no repetition of what stands before or after, no code fence."
)
_FENCE: Final = re.compile(r"^```[^\n`]*\n(.*?)(?:\n?^```|\Z)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeContext:
    """A file around a cursor. `path`: its name, which tells the language; "" = it has none."""

    prefix: str
    suffix: str = ""
    path: str = ""


def ask_fill_in(context: CodeContext, fields: Mapping[str, object]) -> Ask:
    """Return the request for what stands at the cursor, with a chat for those that cannot fill in the middle."""
    prefix, suffix = near(context.prefix, context.suffix)
    chat = ask_chat(
        [
            {"role": "system", "content": _SYSTEM},
            {"role": "user", "content": f"{context.path or 'a file'}:\n{prefix}{_CURSOR}{suffix}"},
        ],
        fields,
    )
    instead = Ask(path=chat.path, fields=chat.fields, clean=partial(code_of, prefix))
    completion = ask_completion(prefix, suffix, fields)
    return Ask(path=completion.path, fields=completion.fields, instead=instead)


def near(prefix: str, suffix: str) -> tuple[str, str]:
    """Return what is near the cursor of a long file: from a line's beginning on a grid, and up to a line's end."""
    if len(prefix) > MAX_PREFIX_CHARS:
        start = -(-(len(prefix) - MAX_PREFIX_CHARS) // _GRID_CHARS) * _GRID_CHARS
        line = prefix.find("\n", start)
        prefix = prefix[start if line < 0 else line + 1 :]
    if len(suffix) > MAX_SUFFIX_CHARS:
        end = suffix.rfind("\n", 0, MAX_SUFFIX_CHARS)
        suffix = suffix[: MAX_SUFFIX_CHARS if end < 0 else end + 1]
    return prefix, suffix


def code_of(prefix: str, answer: str) -> str:
    """Return what of a chat's answer belongs at the cursor: its first fenced block if it has one, without what it repeats
    of the lines before the cursor.
    """
    fenced = _FENCE.search(answer)
    code = fenced[1] if fenced else answer
    starts = [0, *(place + 1 for place, char in enumerate(prefix) if char == "\n")]
    for start in starts:  # most lines first
        repeated = prefix[start:].lstrip()
        if repeated and code.lstrip().startswith(repeated):
            return code.lstrip()[len(repeated) :]
    return code
