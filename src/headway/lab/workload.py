"""What is sent: conversations made from a workload's form and a seed, and the requests they become.

Conversation i depends on the seed, the options and the conversations before it alone, so two runs with one seed send the
same, whoever takes a conversation when. A turn's messages contain the answers to earlier turns, which the caller feeds back.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, cycle
from random import Random

from headway.core.errors import ConfigError
from headway.lab.code_corpus import CodeCorpus, CodePiece
from headway.lab.prompts import (
    CODE_QUESTIONS,
    FOLLOW_UPS,
    LANGUAGES,
    LIGHT_FORMS,
    SHARED_INSTRUCTION,
    TASKS,
)
from headway.lab.token_estimate import TokenCounter, estimated
from headway.lab.workload_spec import Context, Light, Medium, Mixed, MultiTurn, Part, SharedPrefix

TEMPLATE_TOKENS = 32
"""Kept free in a model's context for what its chat template adds to the message."""

_OWN_LINES = 10
"""What a request behind a shared prefix brings of its own."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat: `role` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class WorkloadRequest:
    """One request to send. `conversation` counts from 0, `turn` from 1; `group` names who shares a prefix, from 0."""

    messages: tuple[Message, ...]
    max_output_tokens: int
    conversation: int
    turn: int
    label: str
    group: int | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a user says, turn by turn; `user_turns` is never empty, and one turn long for most workloads."""

    label: str
    user_turns: tuple[str, ...]
    max_output_tokens: int
    number: int = 0
    system: str | None = None
    group: int | None = None

    @property
    def num_turns(self) -> int:
        """How many requests the conversation becomes."""
        return len(self.user_turns)

    def request(self, answers: Sequence[str] = ()) -> WorkloadRequest:
        """Return the request of the turn after the answered ones; raises ValueError when every turn is answered."""
        if len(answers) >= self.num_turns:
            raise ValueError(f"conversation {self.number} has only {self.num_turns} turns")
        messages = [] if self.system is None else [Message("system", self.system)]
        for asked, answer in zip(self.user_turns, answers, strict=False):
            messages += [Message("user", asked), Message("assistant", answer)]
        messages.append(Message("user", self.user_turns[len(answers)]))
        return WorkloadRequest(
            tuple(messages),
            self.max_output_tokens,
            self.number,
            len(answers) + 1,
            self.label,
            self.group,
        )


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """How texts are made: `count_tokens` measures `context:`, `max_context_tokens` is what the model takes, if known."""

    seed: int
    output_tokens: int = 128
    count_tokens: TokenCounter = field(default_factory=estimated)
    max_context_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.output_tokens < 1:
            raise ConfigError(f"An answer has at least 1 token, not {self.output_tokens}.")


def num_planned(workload: Part | Mixed) -> int | None:
    """Return how many conversations a workload names itself (groups x requests), None where it goes on for ever."""
    return workload.groups * workload.requests if isinstance(workload, SharedPrefix) else None


def conversations(
    workload: Part | Mixed, corpus: CodeCorpus, options: WorkloadOptions
) -> Iterator[Conversation]:
    """Return an endless iterator; a shared prefix's groups are followed by new groups.

    Raises ConfigError at once for lengths that do not fit the model, and while iterating when no unused code is left.
    """
    for part in [part for part, _ in workload.parts] if isinstance(workload, Mixed) else [workload]:
        if isinstance(part, Context):
            _refuse_what_does_not_fit(part, options)
    if isinstance(workload, Mixed):
        made = _mixed(workload, corpus, options)
    else:
        made = _part(workload, corpus, options, Random(f"{options.seed}:workload"))
    return (replace(conversation, number=number) for number, conversation in enumerate(made))


def up_to(num_requests: int | None, made: Iterator[Conversation]) -> Iterator[Conversation]:
    """Yield conversations until they have `num_requests` requests; the last one keeps all its turns. None: yield all."""
    left = math.inf if num_requests is None else num_requests
    while left > 0:
        conversation = next(made, None)
        if conversation is None:
            return
        left -= conversation.num_turns
        yield conversation


def _refuse_what_does_not_fit(context: Context, options: WorkloadOptions) -> None:
    if options.max_context_tokens is None:
        return
    longest = options.max_context_tokens - options.output_tokens - TEMPLATE_TOKENS
    for length in context.lengths:
        if length > longest:
            raise ConfigError(
                f"A context of {length} tokens with an answer of {options.output_tokens} and {TEMPLATE_TOKENS} for the chat "
                f"template does not fit the model's {options.max_context_tokens}: ask for at most {max(longest, 0)}."
            )


def _mixed(mixed: Mixed, corpus: CodeCorpus, options: WorkloadOptions) -> Iterator[Conversation]:
    draw = Random(f"{options.seed}:mixed")
    weights = [weight for _, weight in mixed.parts]
    made = [
        _part(part, corpus, options, Random(f"{options.seed}:workload:{number}"))
        for number, (part, _) in enumerate(mixed.parts)
    ]
    while True:
        yield next(draw.choices(made, weights)[0])


def _part(part: Part, corpus: CodeCorpus, options: WorkloadOptions, random: Random) -> Iterator[Conversation]:
    match part:
        case Light():
            return _light(options, random)
        case Medium():
            return _medium(part, corpus, options, random)
        case MultiTurn():
            return _multi_turn(part, corpus, options, random)
        case SharedPrefix():
            return _shared_prefix(part, corpus, options, random)
        case Context():
            return _context(part, corpus, options, random)


def _light(options: WorkloadOptions, random: Random) -> Iterator[Conversation]:
    """Every small question once, in an order of the seed's, then again in another."""
    prompts = [
        form.format(language=language, task=task)
        for form in LIGHT_FORMS
        for language in LANGUAGES
        for task in TASKS
    ]
    while True:
        for prompt in random.sample(prompts, len(prompts)):
            yield Conversation("light", (prompt,), options.output_tokens)


def _medium(
    part: Medium, corpus: CodeCorpus, options: WorkloadOptions, random: Random
) -> Iterator[Conversation]:
    while True:
        asked = f"{_quoted(corpus.take(part.lines, repeat=part.repeat))}\n\n{random.choice(CODE_QUESTIONS)}"
        yield Conversation("medium", (asked,), options.output_tokens)


def _multi_turn(
    part: MultiTurn, corpus: CodeCorpus, options: WorkloadOptions, random: Random
) -> Iterator[Conversation]:
    while True:
        turns: list[str] = []
        for turn in range(part.turns):
            lines = part.lines if turn == 0 else max(1, part.lines // 5)
            question = random.choice(CODE_QUESTIONS if turn == 0 else FOLLOW_UPS)
            turns.append(f"{_quoted(corpus.take(lines, repeat=part.repeat))}\n\n{question}")
        yield Conversation("multi-turn", tuple(turns), options.output_tokens)


def _shared_prefix(
    part: SharedPrefix, corpus: CodeCorpus, options: WorkloadOptions, random: Random
) -> Iterator[Conversation]:
    """The requests of all groups in one shuffled order: those of one group arrive among the others', as users' do."""
    for first_group in count(0, part.groups):
        prefixes = [
            f"{SHARED_INSTRUCTION}\n\n{_quoted(corpus.take(part.lines, repeat=part.repeat))}"
            for _ in range(part.groups)
        ]
        order = [group for group in range(part.groups) for _ in range(part.requests)]
        random.shuffle(order)
        for group in order:
            own = _quoted(corpus.take(_OWN_LINES, repeat=part.repeat))
            yield Conversation(
                "shared-prefix",
                (f"{own}\n\n{random.choice(CODE_QUESTIONS)}",),
                options.output_tokens,
                system=prefixes[group],
                group=first_group + group,
            )


def _context(
    part: Context, corpus: CodeCorpus, options: WorkloadOptions, random: Random
) -> Iterator[Conversation]:
    """Messages of at most the length and less than a line under it."""
    for length in cycle(part.lengths):
        question = random.choice(CODE_QUESTIONS)

        def num_tokens(code: str, question: str = question) -> int:
            return options.count_tokens(_fenced(code, question))

        piece = corpus.take_tokens(length, num_tokens, repeat=part.repeat)
        yield Conversation(f"context:{length}", (_fenced(piece.text, question),), options.output_tokens)


def _fenced(code: str, question: str) -> str:
    return f"```python\n{code}\n```\n\n{question}"


def _quoted(piece: CodePiece) -> str:
    """Begin with where the code is from: prompts then differ from their first words on, and share no cached block."""
    return f"{piece.name}, line {piece.first_line}:\n```python\n{piece.text}\n```"
