"""What a conversation keeps of turns that it no longer shows: their entities, counted, ranked, bounded. Pure.

Code in fences is read by tree-sitter where that is installed, everything else by plain rules. The same texts give the same
entities in the same order, so that a prompt made of them is the same tokens.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from headway.client.entity import Entity, EntityKind
from headway.client.entity_code import definitions, language_of
from headway.client.entity_text import definitions_by_rules, entities_of_text

MAX_TEXT_CHARS: Final = 256 * 1024
"""Of one message: what is beyond is a dump, and its beginning says what of."""
MAX_REMEMBERED: Final = 256
"""Entities that a conversation keeps; the least of them go first."""

_FENCE: Final = re.compile(r"^[ \t]*(`{3,}|~{3,})([^\n`]*)$", re.MULTILINE)
_WEIGHTS: Final[Mapping[EntityKind, int]] = {
    "rule": 8,
    "error": 4,
    "path": 4,
    "class": 4,
    "type": 3,
    "name": 3,
    "function": 2,
}
"""How much a thing matters that was said once; each further mention adds one. Rules are what a later answer must not break
and what nothing else in a prompt repeats. Names come from prose, where people write of what they mean, most functions from
code that was pasted whole."""
_MOST_MENTIONS: Final = 6
_MOST_OF_KIND: Final[Mapping[EntityKind, int]] = {"rule": 8, "error": 4}
"""Of sentences, which are long; the newest count."""
_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_LEAST_PART_CHARS: Final = 3
_NAME: Final = re.compile(r"\w+")
_COMMON: Final = re.compile(
    r"about|after|again|all|also|always|and|any|are|because|been|before|but|can|code|could|did|does|done|each"
    r"|else|ever|file|for|from|function|get|had|has|have|how|into|its|just|keep|line|make|may|more|most|must"
    r"|name|need|never|new|not|now|one|only|other|our|out|over|please|same|see|set|should|show|some|such|than"
    r"|that|the|their|them|then|there|these|they|this|those|through|too|under|use|used|using|was|way|well|were"
    r"|what|when|where|which|while|who|why|will|with|without|would|write|you|your"
)
"""Words that two texts share without being about the same."""


class Remembered(msgspec.Struct, frozen=True):
    """An entity with how often it was mentioned, and in which turn last (from 0)."""

    entity: Entity
    mentions: int
    last_turn: int


Memory = tuple[Remembered, ...]
"""In the order of first mention."""


def entities_of(text: str, *, by_user: bool) -> list[Entity]:
    """Return what a message mentions and what its code defines, in order, repeated as often as it is mentioned."""
    found: list[Entity] = []
    for fence, part in _parts(text[:MAX_TEXT_CHARS]):
        language = None if fence is None else language_of(fence)
        if language is not None:
            defined = definitions(part, language)
            found += definitions_by_rules(part) if defined is None else defined
        else:
            if fence is not None:
                found += definitions_by_rules(part)
            found += entities_of_text(part, by_user=by_user and fence is None)
    return found


def remember(memory: Memory, found: Iterable[Entity], turn: int) -> Memory:
    """Return the memory after a turn that mentioned `found`; of more than it holds the least are forgotten."""
    known = {one.entity: one for one in memory}
    for entity in found:
        before = known.get(entity)
        mentions = 1 if before is None else min(before.mentions + 1, _MOST_MENTIONS)
        known[entity] = Remembered(entity, mentions, turn)
    if len(known) <= MAX_REMEMBERED:
        return tuple(known.values())
    kept = set(sorted(known, key=lambda entity: _rank(known[entity], frozenset()))[:MAX_REMEMBERED])
    return tuple(one for entity, one in known.items() if entity in kept)


def ranked(
    memory: Memory, *, limit: int, about: str = "", shown: str = "", related: bool = False
) -> list[Entity]:
    """Return the most useful entities, best first: those that share words with `about`, then by weight, then the newest.

    shown     text that the prompt has anyway: what stands there is left out, as is a name that a better entity shows
    related   leave out what shares no word with `about`
    """
    words, shown_names = frozenset(_words(about)), set(_NAME.findall(shown))
    told, told_names = "", set[str]()
    chosen: list[Entity] = []
    left = dict(_MOST_OF_KIND)
    for one in sorted(memory, key=lambda one: _rank(one, words)):
        entity = one.entity
        if len(chosen) == limit or (related and words.isdisjoint(_words(entity.text))):
            break
        if left.get(entity.kind) == 0 or _stands_in(entity, told, told_names):
            continue
        if _stands_in(entity, shown, shown_names):
            continue
        if entity.kind in left:
            left[entity.kind] -= 1
        chosen.append(entity)
        told += entity.text + "\n"
        told_names.update(_NAME.findall(entity.text))
    return chosen


def described(entities: Sequence[Entity]) -> list[str]:
    """Return lines that tell a model of them: a line for rules, one for errors, one for all that has a name."""
    lines: list[str] = []
    for title, kinds in (("Rules", {"rule"}), ("Errors", {"error"})):
        if told := [entity.text for entity in entities if entity.kind in kinds]:
            lines.append(f"{title}: " + " | ".join(told))
    if named := [_named(entity) for entity in entities if entity.kind not in {"rule", "error"}]:
        lines.append("Names: " + ", ".join(named))
    return lines


def _parts(text: str) -> Iterator[tuple[str | None, str]]:
    """Cut a message at its fences: (None, prose), (what the fence says, code), …; an open fence ends with the text."""
    start, opened, info = 0, "", ""
    for mark in _FENCE.finditer(text):
        if not opened:
            yield None, text[start : mark.start()]
            opened, info, start = mark[1], mark[2].strip(), mark.end()
        elif mark[1].startswith(opened) and not mark[2].strip():
            yield info, text[start : mark.start()]
            opened, start = "", mark.end()
    yield info if opened else None, text[start:]


def _rank(one: Remembered, words: frozenset[str]) -> tuple[int, int, int]:
    shared = len(words.intersection(_words(one.entity.text))) if words else 0
    return (-shared, -(_WEIGHTS[one.entity.kind] + one.mentions), -one.last_turn)


def _words(text: str) -> Iterator[str]:
    """Yield the words of prose, and of names in camel and snake case, that are long enough to mean something."""
    parts = (part.lower() for part in _PART.findall(text) if len(part) >= _LEAST_PART_CHARS)
    return (part for part in parts if not _COMMON.fullmatch(part))


def _stands_in(entity: Entity, text: str, names: set[str]) -> bool:
    """Return whether `text`, whose words are `names`, shows the entity; `get` does not stand in `together`."""
    return entity.text in names if _NAME.fullmatch(entity.text) else entity.text in text


def _named(entity: Entity) -> str:
    return entity.text if entity.kind in {"path", "name"} else f"{entity.text} ({entity.kind})"
