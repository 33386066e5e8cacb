"""Ways to build prompts that are compared."""

from dataclasses import dataclass

from headway.client.conversation import PromptMode

WINDOW_TOKENS = 3072
"""What a prompt and its answer may take: less than the model's 8,192, so that most conversations outgrow it, at the third or
fourth turn; in the model's own window incremental prompts of five turns are those of full history."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way. `remembers`: whether what is dropped leaves entities and a summary behind."""

    mode: PromptMode
    title: str
    remembers: bool = True


WAYS = {
    "full": Way("full", "full history, or incremental in 8,192 tokens", remembers=False),
    "last-3": Way("last_turns", "last 3 turns", remembers=False),
    "last-3-told": Way("last_turns", "last 3 turns, told of the rest"),
    "incremental": Way("incremental", f"incremental in {WINDOW_TOKENS:,} tokens"),
}
