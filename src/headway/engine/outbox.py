"""Collects what happens between two reports of the engine, in the order that the messages promise."""

from headway.core.messages import (
    ChoiceFinished,
    EngineStats,
    Finished,
    FinishReason,
    SessionReleased,
    StepOutputs,
    TokenDelta,
    TokenLogprobs,
)


class Outbox:
    """The next `StepOutputs` in the making."""

    def __init__(self) -> None:
        self._deltas: list[TokenDelta] = []
        self._choices: list[ChoiceFinished] = []
        self._finished: list[Finished] = []
        self._released: list[SessionReleased] = []

    @property
    def has_ends(self) -> bool:
        """Whether somebody waits to hear of an end; tokens only ever come with a step, which is reported anyway."""
        return bool(self._choices or self._finished or self._released)

    def put_tokens(
        self, request_id: str, choice: int, tokens: tuple[int, ...], logprobs: tuple[TokenLogprobs, ...]
    ) -> None:
        """A choice gained tokens; `logprobs`: one for each, or none at all."""
        self._deltas.append(TokenDelta(request_id, choice, tokens, logprobs))

    def put_choice_end(self, request_id: str, choice: int, reason: FinishReason) -> None:
        """A choice ended."""
        self._choices.append(ChoiceFinished(request_id, choice, reason))

    def put_end(self, finished: Finished) -> None:
        """A request ended."""
        self._finished.append(finished)

    def put_release(self, released: SessionReleased) -> None:
        """A conversation was released, or is not known."""
        self._released.append(released)

    def take(self, stats: EngineStats) -> StepOutputs:
        """Return everything collected, and start anew."""
        outputs = StepOutputs(
            deltas=tuple(self._deltas),
            choices=tuple(self._choices),
            finished=tuple(self._finished),
            released=tuple(self._released),
            stats=stats,
        )
        self._deltas.clear()
        self._choices.clear()
        self._finished.clear()
        self._released.clear()
        return outputs
