"""Runs requests through engines that end one after the other, each resuming what the last one left."""

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from headway.core.messages import FinishReason, Submit, TokenLogprobs
from headway.core.request import Request
from headway.core.resumption import ChoiceProgress, resumed_requests
from headway.engine.engine import Engine
from support.engine_on_fake import Received, run_until_idle, step_checked

Key = tuple[str, int]
"""(id of the original request, choice)"""


@dataclass
class Answers:
    """What callers got, whichever engines it came from."""

    tokens: dict[Key, list[int]] = field(default_factory=dict)
    logprobs: dict[Key, list[TokenLogprobs]] = field(default_factory=dict)
    reasons: dict[Key, FinishReason] = field(default_factory=dict)

    def add(self, got: Received, names: dict[str, str]) -> None:
        """Add what one engine gave; `names`: its requests' ids → the original ones."""
        for (request_id, choice), tokens in got.tokens.items():
            key = (names[request_id], choice)
            assert key not in self.reasons, "tokens after a choice's end"
            self.tokens.setdefault(key, []).extend(tokens)
            self.logprobs.setdefault(key, []).extend(got.logprobs[request_id, choice])
        for (request_id, choice), reason in got.reasons.items():
            self.reasons[names[request_id], choice] = reason
        assert all(finished.error is None for finished in got.finished.values())

    def progress(self, request: Request) -> list[ChoiceProgress]:
        """How far the choices of `request` came."""
        keys = [(request.request_id, choice) for choice in range(request.n)]
        return [ChoiceProgress(array("i", self.tokens.get(key, ())), key in self.reasons) for key in keys]


def run_through(
    new_engine: Callable[[], Engine], requests: Sequence[Request], lives: Iterable[int]
) -> Answers:
    """Run `requests` on engines that end after so many steps each, and a last one that does not."""
    answers = Answers()
    asked = {request.request_id: [request] for request in requests}
    for num_steps in (*lives, None):
        engine, got = new_engine(), Received()
        for request in (one for parts in asked.values() for one in parts):
            engine.handle(Submit(request))
        if num_steps is None:
            run_until_idle(engine, got)
        else:
            for _ in range(num_steps):
                step_checked(engine, got)
        answers.add(got, {part.request_id: name for name, parts in asked.items() for part in parts})
        asked = {r.request_id: resumed_requests(r, answers.progress(r)) for r in requests}
    assert not any(asked.values())
    return answers
