"""One conversation of a simulated run: asks turn by turn, keeps what comes, makes the lab's records of it.

It stands for `lab/client.py` and `lab/connection.py`, whose stamps it gives without a socket: a request is sent the moment
it is due, and a token is read the moment its step is over.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from headway.core.messages import ErrorInfo, Finished
from headway.lab.deltas import TokenUsage
from headway.lab.exchange import Answer, Exchange, Failure, Stamps, StreamEvent
from headway.lab.workload import Conversation
from headway.simulator.prompts import ANSWER, PromptMaker, Tokens

EVENT_CHARS = 4
"""Characters of a token's text, of which there is none: reports ask no more than whether there were any."""
_REFUSALS = (429, 503)


@dataclass(frozen=True, slots=True)
class AnswerLength:
    """Tokens as usage counts them. `ends_itself`: the last one ended the answer and brought no text."""

    num_tokens: int
    ends_itself: bool = False


Lengths = Mapping[tuple[int, int], AnswerLength]
"""(conversation, turn) → how long its answer is; who is not in it gets all the tokens it may have."""


class Talk:
    """Owns one conversation's state; `asked` requests are told to it by `due`, and what came of them by the others.

    prompt  token ids of the turn that runs
    """

    def __init__(
        self,
        conversation: Conversation,
        due_ns: int,
        prompts: PromptMaker,
        lengths: Lengths,
        on_over: Callable[["Talk", Exchange], object],
    ) -> None:
        """The first turn is due at `due_ns`; `on_over` is called with the record of each turn, at its end."""
        self.conversation = conversation
        self.on_over = on_over
        self.turn = 0
        self.due_ns = due_ns
        self.prompt: Tokens = ()
        self.length = AnswerLength(0)
        self._prompts = prompts
        self._lengths = lengths
        self._answer: list[int] = []
        self._events: list[StreamEvent] = []

    @property
    def has_more(self) -> bool:
        """Whether another turn follows."""
        return self.turn < self.conversation.num_turns

    def begin_turn(self, due_ns: int) -> None:
        """Go on to the next turn, due now: make its prompt."""
        conversation, before, answer = self.conversation, self.prompt, self._answer
        request = conversation.request([ANSWER] * self.turn)
        self.turn += 1
        self.due_ns = due_ns
        self.prompt = (
            self._prompts.following(request, before, answer) if before else self._prompts.first(request)
        )
        known = self._lengths.get((conversation.number, self.turn))
        self.length = AnswerLength(request.max_output_tokens) if known is None else known
        self._answer, self._events = [], []

    def take(self, tokens: Tokens, event: StreamEvent) -> None:
        """Tokens have come; `event` may be shared with others of the step."""
        self._answer += tokens
        self._events.append(event)

    def end(self, finished: Finished, now_ns: int) -> None:
        """The request is over: make its record and tell it."""
        events, failure = self._events, None
        if finished.error is not None:
            failure = _failure(finished.error, begun=bool(events))
        elif self.length.ends_itself and len(events) > 1:
            events.pop()
        answered_ns = events[0].at_ns if events else now_ns
        exchange = Exchange(
            stamps=Stamps(
                intended_ns=self.due_ns,
                dispatched_ns=self.due_ns,
                written_ns=self.due_ns,
                first_byte_ns=answered_ns,
                ended_ns=now_ns,
            ),
            answer=Answer(
                events=tuple(events),
                usage=TokenUsage(
                    prompt_tokens=finished.usage.prompt_tokens,
                    completion_tokens=finished.usage.completion_tokens,
                    cached_tokens=finished.usage.cached_tokens,
                ),
                finish_reason=None if failure else "stop" if self.length.ends_itself else "length",
                failure=failure,
            ),
            conversation=self.conversation.number,
            turn=self.turn,
            label=self.conversation.label,
        )
        self.on_over(self, exchange)


def _failure(error: ErrorInfo, *, begun: bool) -> Failure:
    """Return how a client sees it: an error after the answer has begun is an event in it."""
    if begun:
        return Failure(kind="error_event", message=error.message)
    status = error.to_error().status
    return Failure(
        kind="refused" if status in _REFUSALS else "status",
        message=error.message,
        status=status,
        retry_after_s=error.retry_after_s,
    )


def lengths_of(exchanges: Iterable[Exchange]) -> Lengths:
    """Return how long the answers of a run were, for a simulation of the same; of those that tell and succeeded."""
    return {
        (exchange.conversation, exchange.turn): AnswerLength(
            usage.completion_tokens, ends_itself=exchange.answer.finish_reason == "stop"
        )
        for exchange in exchanges
        if exchange.ok and (usage := exchange.answer.usage) is not None and usage.completion_tokens
    }
