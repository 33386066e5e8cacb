"""A conversation's summary: what a model is asked for it, and how its answer is cut. It knows no endpoint.

The request is one more message behind the conversation as it was sent, with the same tools, so that all before it comes
from the prefix cache and only the request itself is computed.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from headway.wire.chat_request import ChatMessage

MAX_SUMMARY_CHARS: Final = 128
"""C1's bound: what a prompt carries of everything that it no longer shows."""
MAX_SUMMARY_TOKENS: Final = 64
"""128 characters of English are 25 to 40 tokens, of Chinese up to as many as there are here."""
SUMMARY_REQUEST: Final = (
    "In one sentence of at most 20 words: what am I working on, what did we decide, and what is still open?"
)
"""Twenty words are about 128 characters, which models cannot count; and a question, because small models repeat a list of
what a summary should have (seen with SmolLM2) where they answer this."""
SUMMARY_STOP: Final = "\n"

_CUT_MARK: Final = "…"
_THOUGHT: Final = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
"""What a model wrote before its answer, or instead of it (Qwen3, DeepSeek-R1)."""


def asked_for_summary(messages: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
    """Return a conversation followed by the request.

    Behind a message of the user the request joins that message: templates that insist on alternating roles refuse two.
    """
    if messages and messages[-1].role == "user":
        joined = f"{messages[-1].content}\n\n{SUMMARY_REQUEST}"
        return (*messages[:-1], msgspec.structs.replace(messages[-1], content=joined))
    return (*messages, ChatMessage(role="user", content=SUMMARY_REQUEST))


def cut_summary(text: str, max_chars: int = MAX_SUMMARY_CHARS) -> str:
    """Return an answer as one line of at most `max_chars` characters, cut behind a word; "" if it says nothing.

    What was cut ends in an ellipsis. A text without spaces (Chinese, Japanese) is cut behind any character.
    """
    line = " ".join(_THOUGHT.sub(" ", text).split())
    if len(line) <= max_chars:
        return line
    room = max_chars - len(_CUT_MARK)
    head = line[:room]
    if line[room] != " ":
        head = head.rpartition(" ")[0] or head
    return head.rstrip(" ,;:") + _CUT_MARK
