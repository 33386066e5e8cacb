"""When a conversation outgrows its window, and what is left of it then. Pure.

Dropping the oldest turn of each prompt would have nearly all of it computed again, each time. So beyond a high-water mark
the conversation is compacted once, in a big step, to a line of summary, what it was about, and its latest turns; then it
grows again, prompt by prompt (append-only contexts: Manus, "Context engineering for AI agents", 2025).
"""

from bisect import bisect_left
from dataclasses import replace

from headway.client.conversation import (
    Conversation,
    Turn,
    only_answered,
    prompt_of,
    tagged,
    text_of,
    without_oldest,
)
from headway.client.entities import described, ranked
from headway.client.prompt_tokens import CountTokens
from headway.core.errors import ConfigError
from headway.wire.chat_request import ChatMessage


def num_to_compact(conversation: Conversation, count: CountTokens, question: str = "") -> int:
    """Return how many turns a compaction should drop before `question` is asked; 0 = there is no need of one, or no use.

    It is needed once the prompt with the question exceeds the high-water mark. As many of the latest turns stay as fit below
    the low one, at least one.
    """
    rules, now = conversation.rules, only_answered(conversation)
    if rules.mode != "incremental" or len(now.turns) < 2:
        return 0
    asked = ChatMessage(role="user", content=question)

    def size(num_dropped: int) -> int:
        prompt = prompt_of(replace(now, turns=now.turns[num_dropped:]))
        return count(replace(prompt, messages=(*prompt.messages, asked)))

    if size(0) <= rules.high_water * rules.window_tokens:
        return 0
    candidates = range(
        1, len(now.turns) - 1
    )  # smaller and smaller; if none is small enough, all turns but one
    return 1 + bisect_left(
        candidates, -rules.low_water * rules.window_tokens, key=lambda number: -size(number)
    )


def compacted(conversation: Conversation, num: int, summary: str) -> Conversation:
    """Return the conversation with a summary, and what they were about, in place of its oldest `num` turns.

    Both stand in front of the first question that is left: behind system message, tools and examples, which stay cached, and
    in a message that is there anyway, as templates insist on alternating roles. An empty summary leaves the last one.

    Raises ConfigError unless `num` is 1 to all turns but one.
    """
    now = only_answered(conversation)
    if not 1 <= num < len(now.turns):
        raise ConfigError(
            f"A compaction drops 1 to {len(now.turns) - 1} turns of {len(now.turns)}, not {num}."
        )
    now = replace(without_oldest(now, num), summary=summary or now.summary)
    kept = ranked(now.memory, limit=now.rules.max_entities, shown=text_of(now))
    lines = [f"Summary: {now.summary}"] if now.summary else []
    block = tagged("earlier", lines + described(kept))
    first, rest = now.turns[0], now.turns[1:]
    opened = ChatMessage(role="user", content=block + (first.messages[0].content or ""))
    return replace(now, turns=(Turn(first.question, (opened, *first.messages[1:])), *rest))
