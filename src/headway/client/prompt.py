"""A conversation's next prompt, which begins with the one before it: state in, messages out. Pure.

The new question comes last. What is true of it only (cursor, time, entities recalled from turns that are no longer shown)
stands in front of it, in the same message, and stays there: nothing that was sent is ever written differently. So a server
with a prefix cache computes what is new, and nothing else. In mode "last_turns" each question drops the oldest turn, which
changes the prompt right behind the system message: that is what `compaction` is there to avoid.
"""

from dataclasses import replace

from headway.client.conversation import (
    Context,
    Conversation,
    Turn,
    only_answered,
    tagged,
    text_of,
    without_oldest,
)
from headway.client.entities import described, ranked
from headway.core.errors import ConfigError
from headway.wire.chat_request import ChatMessage


def ask(conversation: Conversation, question: str, context: Context | None = None) -> Conversation:
    """Return the conversation with a new question. One that got no answer is withdrawn by the next one."""
    before = only_answered(conversation)
    if (num := num_sliding(before)) > 0:
        before = without_oldest(before, num)
    slides = conversation.rules.mode == "last_turns"
    recalled = ranked(
        before.memory,
        limit=conversation.rules.max_recalled,
        about=question,
        shown=f"{text_of(before)}\n{question}",
        related=not slides,  # what else was compacted away stands in the compaction's block
    )
    lines = _context_lines(context or Context())
    if slides and before.summary:
        lines.append(f"Earlier: {before.summary}")
    content = tagged("context", lines + described(recalled)) + question
    turn = Turn(question, (ChatMessage(role="user", content=content),))
    return replace(before, turns=(*before.turns, turn))


def answered(conversation: Conversation, *messages: ChatMessage) -> Conversation:
    """Return the conversation with what came back for its last question: answers, calls, results of tools, in their order.

    Raises ConfigError before the first question.
    """
    if not conversation.turns:
        raise ConfigError("An answer follows a question; ask one first.")
    last = conversation.turns[-1]
    grown = Turn(last.question, (*last.messages, *messages))
    return replace(conversation, turns=(*conversation.turns[:-1], grown))


def num_sliding(conversation: Conversation) -> int:
    """Return how many turns the next question drops: 0 but in mode "last_turns"."""
    if conversation.rules.mode != "last_turns":
        return 0
    return max(0, len(only_answered(conversation).turns) - (conversation.rules.last_turns - 1))


def with_summary(conversation: Conversation, summary: str) -> Conversation:
    """Return the conversation with a summary, for prompts of mode "last_turns" from the next question on."""
    return replace(conversation, summary=summary or conversation.summary)


def _context_lines(context: Context) -> list[str]:
    told = (("Cursor", context.cursor), ("Time", context.time), *context.notes)
    return [f"{title}: {text}" for title, text in told if text]
