"""Every choice of one call: its text, its tokens, whether it has ended. It knows no engine and no time.

Choices are numbered through: those of prompt i are i·n to i·n+n-1. What comes from an engine and what a log kept of another
process go the same way, so that both leave the same state.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from headway.core.messages import TokenLogprobs, Usage
from headway.core.request import Request
from headway.core.resumption import ChoiceProgress, resumed_requests
from headway.gateway.choice_text import ChoiceText
from headway.gateway.step_record import StepRecord
from headway.gateway.text_events import ChoiceEnd, TextEvent
from headway.wire.chat_response import FinishReason


class Choices:
    """The choices of one call.

    requests      what the engine was asked first, one per prompt, all of the same `n`
    interrupted   whether that engine, or the process that asked it, has ended since
    """

    def __init__(self, requests: Sequence[Request], new_text: Callable[[int], ChoiceText]) -> None:
        self.requests = tuple(requests)
        self.interrupted = False
        self._n = requests[0].n
        self._texts = [new_text(choice) for choice in range(len(requests) * self._n)]
        self._progress = [ChoiceProgress() for _ in self._texts]
        self._num_cached = [0] * len(requests)
        self._reasons: set[FinishReason] = set()

    @property
    def all_ended(self) -> bool:
        """Whether no choice can get more text."""
        return all(text.ended for text in self._texts)

    @property
    def outcome(self) -> Literal["stop", "length"]:
        """How the call ended: "length" when every choice ran into its limit."""
        return "length" if self._reasons == {"length"} else "stop"

    @property
    def usage(self) -> Usage:
        """What was used so far. Each token counts once, however many engines it took."""
        return Usage(
            prompt_tokens=sum(len(request.token_ids) for request in self.requests),
            completion_tokens=sum(text.num_tokens for text in self._texts),
            cached_tokens=sum(self._num_cached),
        )

    def open_requests(self) -> list[tuple[int, Request]]:
        """Return what is to be asked of an engine, by prompt: all of it, or once interrupted what is left."""
        if not self.interrupted:
            return list(enumerate(self.requests))
        return [
            (prompt, left)
            for prompt, request in enumerate(self.requests)
            for left in resumed_requests(request, self._progress[prompt * self._n : (prompt + 1) * self._n])
        ]

    def filled(self) -> list[tuple[int, int]]:
        """Return (prompt, choice) of what is open with all its tokens, which nobody is asked for once interrupted."""
        if not self.interrupted:
            return []
        return [
            (prompt, choice)
            for prompt, request in enumerate(self.requests)
            for choice in range(self._n)
            if not (made := self._progress[self.index(prompt, choice)]).ended
            and len(made.token_ids) >= request.max_tokens
        ]

    def index(self, prompt: int, choice: int) -> int:
        """Return the number of a prompt's choice among all."""
        return prompt * self._n + choice

    def push(
        self, index: int, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs]
    ) -> tuple[int, Sequence[TextEvent]]:
        """Take a step's tokens of choice `index` among all; return how many count, and what they make certain."""
        text = self._texts[index]
        if text.ended:
            return 0, ()
        num_before = text.num_tokens
        found = text.push(token_ids, logprobs)
        self._progress[index].extend(token_ids)
        return text.num_tokens - num_before, self._noted(index, found)

    def finish(self, prompt: int, choice: int, reason: FinishReason) -> Sequence[TextEvent]:
        """The engine ended a choice; return what was held back, and the end. Nothing if it had ended before."""
        index = self.index(prompt, choice)
        return self._noted(index, self._texts[index].finish(reason))

    def note_cached(self, prompt: int, num_tokens: int) -> None:
        """Note how many tokens the cache gave: of what an earlier engine generated it may give some, too."""
        num_prompt = len(self.requests[prompt].token_ids)
        self._num_cached[prompt] = max(self._num_cached[prompt], min(num_tokens, num_prompt))

    def replay(self, step: StepRecord) -> list[TextEvent]:
        """Take what a step did in another process; return the events that it made there."""
        events: list[TextEvent] = []
        for tokens in step.tokens:
            events += self.push(self.index(step.prompt, tokens.choice), tokens.token_ids, tokens.logprobs)[1]
        for choice, reason in step.ends:
            events += self.finish(step.prompt, choice, reason)
        self.note_cached(step.prompt, step.num_cached)
        return events

    def _noted(self, index: int, found: Sequence[TextEvent]) -> Sequence[TextEvent]:
        if found and isinstance(found[-1], ChoiceEnd):
            self._progress[index].ended = True
            self._reasons.add(found[-1].reason)
        return found
