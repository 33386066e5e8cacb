"""How many tokens a prompt has, as a client knows it: an estimate that the server's own counts correct. No tokenizer.

What is decided by it (compact or not) has a quarter of the window to spare, so an estimate that is right to a few per cent
does; whoever has the model's tokenizer passes a count of its own instead.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from headway.client.prompt_message import Prompt

CountTokens = Callable[[Prompt], int]
"""Returns how many tokens a prompt has once a chat template has rendered it."""

TOKENS_PER_MESSAGE: Final = 6
"""Role, marks and line ends: 4 to 8 in ChatML, Llama 3 and Gemma."""
CHARS_PER_TOKEN: Final = 3.0
"""A low guess, until the first count is known: code has 2.5 to 3.5, English 4, Chinese 1 to 2."""
_LEAST_CHARS: Final = 200
"""Of a prompt whose count teaches anything: below, what the template adds outweighs its text."""


@dataclass(frozen=True, slots=True)
class TokenEstimate:
    """Counts by characters; `learnt` makes a better one of a count that the server has told."""

    chars_per_token: float = CHARS_PER_TOKEN

    def __call__(self, prompt: Prompt) -> int:
        """Return the estimate."""
        return round(_num_chars(prompt) / self.chars_per_token) + TOKENS_PER_MESSAGE * len(prompt.messages)

    def learnt(self, prompt: Prompt, prompt_tokens: int) -> "TokenEstimate":
        """Return the estimate by which `prompt` has `prompt_tokens`, the usage's; itself where the prompt is too short."""
        num_chars = _num_chars(prompt)
        num_tokens = prompt_tokens - TOKENS_PER_MESSAGE * len(prompt.messages)
        if num_chars < _LEAST_CHARS or num_tokens < 1:
            return self
        return replace(self, chars_per_token=num_chars / num_tokens)


def _num_chars(prompt: Prompt) -> int:
    texts = sum(len(message.content or "") for message in prompt.messages)
    calls = sum(
        len(call.name) + len(call.arguments) for message in prompt.messages for call in message.tool_calls
    )
    return texts + calls + len(prompt.tools_json)
