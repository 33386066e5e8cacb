"""Ways to build prompts that are compared."""

from dataclasses import dataclass

from headway.client.conversation import PromptMode

WINDOW_TOKENS = 4096
"""What a prompt may take: less than the model's 8,192, so that the conversations outgrow it once, at the fourth turn."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way. `remembers`: whether what is dropped leaves things and a summary behind."""

    mode: PromptMode
    title: str
    remembers: bool = True


WAYS = {
    "full": Way("full", "full history", remembers=False),
    "last-3": Way("last_turns", "last 3 turns", remembers=False),
    "last-3-told": Way("last_turns", "last 3 turns, told of the rest"),
    "incremental": Way("incremental", f"incremental, {WINDOW_TOKENS:,} tokens"),
}
