"""A conversation as prompts see it: what is shown, what is remembered of the rest, within which rules. Frozen values.

What never changes stands first (system message, examples), then the turns as they were sent. It knows neither how a question
is put (`prompt`) nor when turns are dropped (`prompt`, `compaction`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from headway.client.entities import Memory, entities_of, remember
from headway.client.prompt_message import Prompt, stable_tools
from headway.core.errors import ConfigError
from headway.wire.chat_request import ChatMessage
from headway.wire.profile import DEFAULT_HIGH_WATER, Profile

PromptMode = Literal["incremental", "last_turns", "full"]
"""Incremental: append, and compact beyond the mark. Last turns: a sliding window. Full: append, whatever it comes to."""

_MOST_ENTITIES: Final = 24
_WINDOW_PER_ENTITY: Final = 128
"""Tokens: an entity takes about ten, so that together they take less than a tenth of the window."""
DEFAULT_LOW_WATER: Final = 0.35
"""Share of the window a compaction leaves: with a mark of 0.75 the next one is 40 % of the window away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRules:
    """How a conversation's prompts are kept within a window; raises ConfigError for what makes no sense.

    window_tokens    most tokens of a prompt and its answer
    high_water       share of the window beyond which the conversation is compacted
    low_water        share of the window that a compaction leaves at most, but for the latest turn, which always stays
    last_turns       of mode "last_turns": turns that a prompt shows, the new question's among them
    max_entities     entities that a compaction leaves of the turns it drops
    max_recalled     entities recalled for one question that no turn shows any more
    """

    window_tokens: int
    mode: PromptMode = "incremental"
    high_water: float = DEFAULT_HIGH_WATER
    low_water: float = DEFAULT_LOW_WATER
    last_turns: int = 3
    max_entities: int = _MOST_ENTITIES
    max_recalled: int = 8

    def __post_init__(self) -> None:
        if not 0 < self.low_water < self.high_water < 1:
            raise ConfigError(
                "A prompt's marks must be 0 < low_water < high_water < 1; "
                f"they are {self.low_water:g} and {self.high_water:g}."
            )
        if self.window_tokens < 1 or self.last_turns < 1:
            raise ConfigError("A prompt has a window of at least 1 token, and shows at least 1 turn.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What is true of one question only, "" = not told.

    cursor   where the user is, such as `src/app.py:12:4`
    time     as the model should read it
    notes    further lines, by title, such as what git says
    """

    cursor: str = ""
    time: str = ""
    notes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """A question as the user wrote it, and the messages as they were sent: the question with its context, then answers."""

    question: str
    messages: tuple[ChatMessage, ...]

    @property
    def is_answered(self) -> bool:
        """Whether anything came back."""
        return len(self.messages) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A conversation so far: what its next prompt shows, and what is remembered of what it no longer shows.

    system        the system message, "" = none
    examples      messages between it and the conversation
    tools_json    as of `stable_tools`
    turns         that are shown, oldest first
    num_dropped   turns before those
    summary       of these, one line; "" = none
    memory        of these
    """

    rules: PromptRules
    system: str = ""
    examples: tuple[ChatMessage, ...] = ()
    tools_json: str = ""
    turns: tuple[Turn, ...] = ()
    num_dropped: int = 0
    summary: str = ""
    memory: Memory = ()


def begin(
    profile: Profile,
    *,
    mode: PromptMode = "incremental",
    tools: Sequence[Mapping[str, object]] = (),
    examples: Sequence[ChatMessage] = (),
    window_tokens: int | None = None,
) -> Conversation:
    """Return a conversation without turns, as a server's profile has it.

    window_tokens   in place of the model's, such as where less is to be spent

    Raises ConfigError if neither is known.
    """
    window = profile.window_tokens if window_tokens is None else window_tokens
    if window is None:
        raise ConfigError("The server does not know its model's window yet; pass `window_tokens`.")
    rules = PromptRules(
        window_tokens=window,
        mode=mode,
        high_water=profile.high_water,
        low_water=min(DEFAULT_LOW_WATER, profile.high_water / 2),
        max_entities=min(_MOST_ENTITIES, max(1, window // _WINDOW_PER_ENTITY)),
    )
    system = "\n\n".join(text for text in (profile.role.strip(), profile.domain.strip()) if text)
    return Conversation(rules=rules, system=system, examples=tuple(examples), tools_json=stable_tools(tools))


def prompt_of(conversation: Conversation) -> Prompt:
    """Return what to send."""
    system = [ChatMessage(role="system", content=conversation.system)] if conversation.system else []
    shown = [message for turn in conversation.turns for message in turn.messages]
    return Prompt((*system, *conversation.examples, *shown), conversation.tools_json)


def text_of(conversation: Conversation) -> str:
    """Return all that a prompt shows, as one text."""
    return "\n".join(message.content or "" for message in prompt_of(conversation).messages)


def only_answered(conversation: Conversation) -> Conversation:
    """Return the conversation without a question that nothing came back for."""
    if conversation.turns and not conversation.turns[-1].is_answered:
        return replace(conversation, turns=conversation.turns[:-1])
    return conversation


def without_oldest(conversation: Conversation, num: int) -> Conversation:
    """Return the conversation without its oldest `num` turns, remembering what they were about."""
    memory = conversation.memory
    for index, turn in enumerate(conversation.turns[:num], conversation.num_dropped):
        found = entities_of(turn.question, by_user=True)
        for message in turn.messages[1:]:
            found += entities_of(message.content or "", by_user=False)
        memory = remember(memory, found, index)
    return replace(
        conversation,
        turns=conversation.turns[num:],
        num_dropped=conversation.num_dropped + num,
        memory=memory,
    )


def tagged(tag: str, lines: Sequence[str]) -> str:
    """Return lines in front of a text, between tags; nothing if there are none."""
    return f"<{tag}>\n" + "\n".join(lines) + f"\n</{tag}>\n\n" if lines else ""
