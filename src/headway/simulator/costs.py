"""What things take in a simulation, in nanoseconds: the seam between a machine and the time it is predicted to need."""

from dataclasses import dataclass
from typing import Protocol

from headway.runner.step import Step


class StepCost(Protocol):
    """Predicts how long a step takes; the same step always takes the same."""

    def step_ns(self, step: Step) -> int:
        """Return the duration of `step`, the engine's own Python included."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingCost:
    """What HTTP, the chat template, the tokenizer and the hop to the engine take, before a prompt is in its queue.

    Prompts do not wait for each other here, as they do behind the gateway's one tokenising thread.
    """

    request_ns: float = 0.0
    prompt_token_ns: float = 0.0

    def until_queued_ns(self, num_prompt_tokens: int) -> int:
        """Return the time from when a request is due to when the engine has it."""
        return round(self.request_ns + self.prompt_token_ns * num_prompt_tokens)
