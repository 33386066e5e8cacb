"""What a conversation is about, thing by thing: a name, a path, an error, a rule. It knows no texts."""

from typing import Final, Literal

import msgspec

EntityKind = Literal["rule", "error", "path", "class", "type", "function", "name"]
"""Rule: what the user wants kept to. Type: an interface, a struct, an enumeration. Name: any other word of code."""

MAX_ENTITY_CHARS: Final = 160
"""Of a rule or an error, which are sentences; names and paths beyond it are no names."""


class Entity(msgspec.Struct, frozen=True):
    """One thing, in one line of text."""

    kind: EntityKind
    text: str


def sentence(kind: EntityKind, text: str) -> Entity:
    """Return an entity that is a sentence: one line, cut behind a word."""
    line = " ".join(text.split())
    if len(line) > MAX_ENTITY_CHARS:
        head = line[: MAX_ENTITY_CHARS - 1]
        line = (head.rpartition(" ")[0] or head) + "…"
    return Entity(kind, line)
