"""Thirty edits of real code: a function of about 60 lines from Python's own library, and the same function edited.

Read from the interpreter that runs (`inspect`), so no text is stored. Each of ten functions is edited in three ways, as
an assistant is asked to: a variable gets another name, an argument is added and used, a line in the middle is changed.
Edits follow rules, not the code, so they work on any version of the library. It knows no tokenizer and no engine.
"""

import inspect
import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pkgutil import resolve_name

FUNCTIONS = (
    "argparse:ArgumentParser._parse_optional",
    "ast:literal_eval",
    "difflib:unified_diff",
    "mimetypes:MimeTypes.guess_type",
    "pickle:_Pickler.save",
    "shutil:_copytree",
    "shutil:move",
    "subprocess:Popen.communicate",
    "urllib.parse:parse_qsl",
    "urllib.parse:urlsplit",
)
KEYWORDS = frozenset(
    {"self", "True", "False", "None", "isinstance", "return", "raise", "else", "elif", "with"}
)


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit: what is asked for, the code before and the code after."""

    name: str
    instruction: str
    before: str
    after: str


def edits() -> Iterator[Edit]:
    """Yield the thirty edits, function by function."""
    for path in FUNCTIONS:
        import_module(path.partition(":")[0])
        code = textwrap.dedent(inspect.getsource(resolve_name(path)))
        for kind, edit in (("rename", _rename), ("argument", _argument), ("line", _line)):
            instruction, after = edit(code)
            assert after != code, f"{path} has nothing to edit: {kind}"
            yield Edit(f"{path} {kind}", instruction, code, after)


def _rename(code: str) -> tuple[str, str]:
    """Give the name that is assigned and used most another one."""
    assigned = set(re.findall(r"^\s+(\w{3,}) = ", code, re.MULTILINE)) - KEYWORDS
    counts = Counter(word for word in re.findall(r"(?<![\w.])\w+", code) if word in assigned)
    name = max(sorted(counts), key=lambda word: counts[word])
    return f"Rename `{name}` to `wanted_{name}`.", re.sub(rf"(?<![\w.]){name}\b", f"wanted_{name}", code)


def _argument(code: str) -> tuple[str, str]:
    """Add an argument at the signature's end, and two lines that use it before the body's first statement."""
    signature = re.search(r"\)(?: ->[^:]*)?:\n", code)
    assert signature is not None
    head, rest = code[: signature.start()], code[signature.start() :]
    body = signature.end() - signature.start()
    docstring = re.match(r'\s+[rR]?"""(?:.|\n)*?"""\n', rest[body:])
    if docstring is not None:
        body += docstring.end()
    use = "    if checked:\n        check_arguments(checked)\n"
    return (
        "Add an argument `checked` and check it first.",
        f"{head}, checked=False{rest[:body]}{use}{rest[body:]}",
    )


def _line(code: str) -> tuple[str, str]:
    """Change the simple assignment or condition that is nearest the middle."""
    lines = code.splitlines(keepends=True)
    middle = len(lines) // 2
    for index in sorted(range(len(lines)), key=lambda i: abs(i - middle)):
        changed = re.sub(r"^(\s+\w+ = )([^\n\[({=]+)\n$", r"\1normalised(\2, strict=True)\n", lines[index])
        changed = re.sub(r"^(\s+if )([^\n]+):\n$", r"\1enabled and not (\2):\n", changed)
        if changed != lines[index]:
            lines[index] = changed
            return f"Change line {index + 1} so that the case is handled.", "".join(lines)
    raise AssertionError("no line to change")
