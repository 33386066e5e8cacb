"""The forms in which a workload is asked for, and their grammar. What they send is in `workload`.

workload = part | "mixed:" part "=" weight ("," part "=" weight)* | "trace:" file
part     = "light" | ("medium" | "multi-turn" [":" turns] | "shared-prefix:" groups ":" requests
         | "context:" length ("," length)*) [":repeat"]
length   = digits ["k" | "m"]            1k = 1,024 tokens
"""

import re
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from headway.core.errors import ConfigError

FORMS = "light, medium, multi-turn, shared-prefix:GROUPS:REQUESTS, context:2k,4k, mixed:light=0.5,medium=0.5, trace:FILE"

MEDIUM_LINES = 300
MULTI_TURN_LINES = 100
NUM_TURNS = 5
"""The fifth turn is the one that reports name: latency grows with every turn."""

MIN_CONTEXT_TOKENS = 64
"""Below it the question that ends a prompt would be most of it."""

_MAX_COUNT = 1_000_000
_MAX_CONTEXT_TOKENS = 16 * 2**20
_UNITS = {"": 1, "k": 2**10, "m": 2**20}


@dataclass(frozen=True, slots=True)
class Light:
    """Questions of under 50 characters."""


@dataclass(frozen=True, slots=True)
class Medium:
    """A question about `lines` lines of code."""

    lines: int = MEDIUM_LINES
    repeat: bool = False


@dataclass(frozen=True, slots=True)
class MultiTurn:
    """Conversations of `turns` turns about `lines` lines of code, each later turn with a fifth as many new ones."""

    turns: int = NUM_TURNS
    lines: int = MULTI_TURN_LINES
    repeat: bool = False


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """`groups` groups of `requests` requests; each group shares a system message of `lines` lines of code."""

    groups: int
    requests: int
    lines: int = MEDIUM_LINES
    repeat: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """Prompts of the given numbers of tokens, in turn."""

    lengths: tuple[int, ...]
    repeat: bool = False


@dataclass(frozen=True, slots=True)
class TraceFile:
    """What a file recorded."""

    path: Path


Part = Light | Medium | MultiTurn | SharedPrefix | Context
_OF_LINES = (Medium, MultiTurn, SharedPrefix)


@dataclass(frozen=True, slots=True)
class Mixed:
    """Each conversation is one of the parts', drawn by weight; weights are shares of their sum."""

    parts: tuple[tuple[Part, float], ...]


Workload = Part | Mixed | TraceFile


def needs_lengths(workload: Workload) -> bool:
    """Whether prompts are to have given numbers of tokens."""
    parts = [part for part, _ in workload.parts] if isinstance(workload, Mixed) else [workload]
    return any(isinstance(part, Context | TraceFile) for part in parts)


def num_turns(workload: Workload) -> int | None:
    """Return how many requests each conversation becomes, if all go well; None where they differ."""
    parts = [part for part, _ in workload.parts] if isinstance(workload, Mixed) else [workload]
    turns = {part.turns if isinstance(part, MultiTurn) else 1 for part in parts}
    return turns.pop() if len(turns) == 1 else None


def parse_workload(text: str, lines: int | None = None) -> Workload:
    """Return the workload that a text names; `lines` stands in for each form's own number of lines of code.

    Raises ConfigError, one sentence, for a text outside the grammar, a number out of range, or lines that have no use.
    """
    if lines is not None and not 1 <= lines <= _MAX_COUNT:
        raise ConfigError(f"A prompt has between 1 and {_MAX_COUNT:,} lines of code, not {lines}.")
    workload = _workload(text, lines)
    if lines is not None and not any(isinstance(part, _OF_LINES) for part in parts_of(workload)):
        raise ConfigError(f"--lines is for medium, multi-turn and shared-prefix; {text!r} has no use for it.")
    return workload


def parts_of(workload: Workload) -> tuple[Part | TraceFile, ...]:
    """Return what a mixture mixes, of anything else the workload itself."""
    return tuple(part for part, _ in workload.parts) if isinstance(workload, Mixed) else (workload,)


def _workload(text: str, lines: int | None) -> Workload:
    name, _, rest = text.partition(":")
    if name == "trace":
        if not rest:
            raise ConfigError("A trace needs its file: trace:FILE.")
        return TraceFile(Path(rest))
    return _mixed(rest, lines) if name == "mixed" else _part(text, lines)


def _mixed(text: str, lines: int | None) -> Mixed:
    parts: list[tuple[Part, float]] = []
    begun: list[str] = []
    for field in text.split(","):
        begun.append(field)
        part, equals, weight = ",".join(begun).rpartition("=")
        if equals:  # else the comma was one between lengths
            parts.append((_part(part, lines), _weight(part, weight)))
            begun = []
    if begun:
        raise ConfigError(
            f"A mixed workload needs a weight for each part, as in mixed:light=0.5,medium=0.5, not {text!r}."
        )
    return Mixed(tuple(parts))


def _weight(part: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = 0.0
    if not (isfinite(weight) and weight > 0):
        raise ConfigError(f"The weight of {part!r} must be a number over 0, not {text!r}.")
    return weight


def _part(text: str, lines: int | None) -> Part:
    name, *arguments = text.split(":")
    if name == "light" and not arguments:
        return Light()
    repeat = arguments[-1:] == ["repeat"]
    if repeat:
        arguments.pop()
    match name, arguments:
        case "medium", []:
            return Medium(lines or MEDIUM_LINES, repeat)
        case "multi-turn", []:
            return MultiTurn(NUM_TURNS, lines or MULTI_TURN_LINES, repeat)
        case "multi-turn", [turns]:
            return MultiTurn(_number(text, turns), lines or MULTI_TURN_LINES, repeat)
        case "shared-prefix", [groups, requests]:
            return SharedPrefix(_number(text, groups), _number(text, requests), lines or MEDIUM_LINES, repeat)
        case "context", [lengths]:
            return Context(tuple(_length(length) for length in lengths.split(",")), repeat)
    raise ConfigError(f"There is no workload {text!r}; the forms are {FORMS}.")


def _number(part: str, text: str) -> int:
    if re.fullmatch("[0-9]{1,7}", text) is None or not 1 <= int(text) <= _MAX_COUNT:
        raise ConfigError(f"{text!r} in {part!r} must be a whole number from 1 to {_MAX_COUNT:,}.")
    return int(text)


def _length(text: str) -> int:
    match = re.fullmatch("([0-9]{1,9})([km]?)", text.lower())
    length = int(match[1]) * _UNITS[match[2]] if match else 0
    if not MIN_CONTEXT_TOKENS <= length <= _MAX_CONTEXT_TOKENS:
        raise ConfigError(
            f"A context's length must be from {MIN_CONTEXT_TOKENS} tokens to 16m, as in 512 or 4k, not {text!r}."
        )
    return length
