"""What a call does next, given what has happened: pure functions over values, carried out by `client/race.py`.

Until the first token every endpoint of the chain is asked in turn, each as soon as the one before it failed or used up
its time; after that, those whose failures allow it again, with growing pauses, out of one budget for the whole call. A
hedge asks a second one while the first still runs. From the first token on there is one endpoint, and the only thing left to
decide is whether its stream can be resumed. Nothing is begun at or after the deadline, and every call ends by it.

It knows no clock, no HTTP and no randomness: time and a draw are handed in.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headway.client.answer import Why
from headway.client.failure import Failure, Kind, may_retry, most_telling
from headway.core.clock import NS_PER_MS

_FIRST_PAUSE_NS: Final = 100 * NS_PER_MS
_PAUSE_GROWTH: Final = 3.0
"""0.1, 0.3, 0.9, 2.7 s: three or four retries fit before a first token that is due in 4 s, and five
resumes reach over the seconds that a server takes to come back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """An endpoint that was asked. `until_ns`: when its time is up. `end_ns`, `failure`: None while it runs."""

    endpoint: int
    why: Why
    start_ns: int
    until_ns: int
    end_ns: int | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that a decision before the first token depends on.

    deadline_ns     when the first token is due
    patience_ns     what each endpoint of the chain may take; None = its part of what is left
    hedge_after_ns  when asking a second one is worth it, after the start of a try; None = unknown, or not allowed
    jitter          drawn for this call, within [0, 1): spreads retries of many callers
    """

    now_ns: int
    deadline_ns: int
    patience_ns: tuple[int | None, ...]
    tries: tuple[Try, ...]
    retries_left: int
    hedge_after_ns: tuple[int | None, ...]
    jitter: float


@dataclass(frozen=True, slots=True)
class Start:
    """Ask an endpoint now."""

    endpoint: int
    why: Why
    until_ns: int


@dataclass(frozen=True, slots=True)
class Abandon:
    """Close a try (by its place) whose time is up."""

    number: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until then, unless a try answers or fails first."""

    until_ns: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Nobody will answer in time."""

    failure: Failure


Move = Start | Abandon | Wait | GiveUp


def next_move(now: Situation) -> Move:
    """Return what to do before the first token."""
    failures = [each.failure for each in now.tries if each.failure is not None]
    if any(failure.kind is Kind.MISTAKE for failure in failures):
        return GiveUp(most_telling(failures))
    running = [(number, each) for number, each in enumerate(now.tries) if each.failure is None]
    if now.now_ns >= now.deadline_ns:
        late = [too_slow()] if running or not failures else []
        return GiveUp(most_telling([*failures, *late]))
    for number, each in running:
        if now.now_ns >= each.until_ns:
            return Abandon(number)
    if running:
        return _while_running(now, [each for _, each in running])
    if (fresh := _next_fresh(now)) is not None:
        return _start(now, fresh, "fallback" if now.tries else "first")
    return _again(now, failures)


def too_slow() -> Failure:
    """Return the failure of a try whose time was up."""
    return Failure(kind=Kind.SLOW, message="No first token came in time.")


def pause_ns(num_failures: int, jitter: float) -> int:
    """Return how long to wait after so many failures in a row (≥ 1): tripling, ± a quarter."""
    return round(_FIRST_PAUSE_NS * _PAUSE_GROWTH ** (num_failures - 1) * (0.75 + jitter / 2))


def resume_at(
    now_ns: int, deadline_ns: int, num_failures: int, retries_left: int, failure: Failure, jitter: float
) -> int | None:
    """Return when to ask for the rest of a cut stream; None = not at all.

    num_failures  cuts in a row without an event between them: after the first one it is asked for at once
    """
    if retries_left < 1 or not may_retry(failure):
        return None
    wait_ns = failure.retry_after_ns or 0
    if num_failures > 1:
        wait_ns = max(wait_ns, pause_ns(num_failures - 1, jitter))
    return now_ns + wait_ns if now_ns + wait_ns < deadline_ns else None


def _while_running(now: Situation, running: Sequence[Try]) -> Move:
    wake_ns = min(now.deadline_ns, *(each.until_ns for each in running))
    first = running[0]
    after_ns = now.hedge_after_ns[first.endpoint]
    hedged = any(each.why == "hedge" for each in now.tries)
    if len(running) > 1 or hedged or after_ns is None:
        return Wait(wake_ns)
    hedge_ns = first.start_ns + after_ns
    if now.now_ns < hedge_ns:
        return Wait(min(wake_ns, hedge_ns))
    if (fresh := _next_fresh(now)) is not None:
        return _start(now, fresh, "hedge")
    return Start(first.endpoint, "hedge", now.deadline_ns)


def _next_fresh(now: Situation) -> int | None:
    """Return the first of the chain that was not asked yet."""
    asked = {each.endpoint for each in now.tries}
    return next((place for place in range(len(now.patience_ns)) if place not in asked), None)


def _start(now: Situation, endpoint: int, why: Why) -> Start:
    left_ns = now.deadline_ns - now.now_ns
    patience_ns = now.patience_ns[endpoint]
    if patience_ns is None:
        asked = {each.endpoint for each in now.tries} | {endpoint}
        patience_ns = left_ns if len(asked) == len(now.patience_ns) else left_ns // 2
    return Start(endpoint, why, now.now_ns + min(left_ns, max(1, patience_ns)))


def _again(now: Situation, failures: Sequence[Failure]) -> Move:
    """Everybody was asked and failed: return who is asked again, and when."""
    ready: list[tuple[int, int]] = []
    for endpoint in range(len(now.patience_ns)):
        failed = [each for each in now.tries if each.endpoint == endpoint]
        last = failed[-1]
        assert last.failure is not None
        assert last.end_ns is not None
        if may_retry(last.failure):
            wait_ns = max(last.failure.retry_after_ns or 0, pause_ns(len(failed), now.jitter))
            ready.append((last.end_ns + wait_ns, endpoint))
    if not ready or now.retries_left < 1:
        return GiveUp(most_telling(failures))
    ready_ns, endpoint = min(ready)
    if ready_ns >= now.deadline_ns:
        return GiveUp(most_telling(failures))
    return Wait(ready_ns) if now.now_ns < ready_ns else Start(endpoint, "retry", now.deadline_ns)
