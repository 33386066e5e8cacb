"""What observing costs the gateway's event loop: `python benchmarks/observability.py`.

Prints for each kind of listener the microseconds that a call takes, from its record to its end, and each later token; then
the milliseconds that a scrape takes. Each figure is the least of several runs: what others do to the machine only adds.
"""

import itertools
import socket
import time
from collections.abc import Callable, Sequence
from random import Random

from headway.core.caller import Caller
from headway.core.clock import MonotonicClock
from headway.core.events import CallEnded, Hook
from headway.core.hooks import also, emit
from headway.core.messages import Finished, Usage
from headway.core.stages import in_ms
from headway.gateway.request_info import RequestInfo
from headway.gateway.request_record import RequestRecord
from headway.obs.metrics import Metrics
from headway.obs.tracing import MAX_QUEUED, Tracing, otlp_exporter

NUM_CALLS = 300
NUM_TOKENS = 1000
NUM_RUNS = 15
USAGE = Usage(prompt_tokens=100, completion_tokens=10, cached_tokens=0)
CLOCK = MonotonicClock()
CALLERS = [Caller(token_id=f"token{number}", tenant="acme") for number in range(100)]
IDS = [f"{Random(number).getrandbits(128):032x}" for number in range(10_000)]
SCOPE = {"method": "POST", "path": "/v1/chat/completions"}


def call(hook: Hook | None, number: int, num_tokens: int) -> None:
    """Do what the gateway does for one call, but for serving it."""
    caller = CALLERS[number % len(CALLERS)]
    info = RequestInfo(IDS[number % len(IDS)], CLOCK.now_ns(), caller=caller)
    record = info.record = RequestRecord(
        request_id=info.request_id,
        model="m",
        service_class="normal",
        arrival_ns=info.arrival_ns,
        clock=CLOCK,
        hook=hook,
        caller=caller,
        endpoint="/v1/chat/completions",
    )
    record.note_submitted()
    for _ in range(num_tokens):
        record.note_tokens(0, 1, CLOCK.now_ns())
    now_ns = CLOCK.now_ns()
    finished = Finished(
        request_id=info.request_id,
        usage=USAGE,
        queued_ns=now_ns,
        first_scheduled_ns=now_ns,
        first_token_ns=now_ns,
        finished_ns=now_ns,
    )
    record.note_finished(finished)
    record.end("stop", status=200, usage=USAGE)
    end_ns = CLOCK.now_ns()
    emit(hook, info.ended(SCOPE, 200, end_ns))
    in_ms(record.stages(end_ns))  # as the access line has them


def least_us(work: Callable[[], None], count: int) -> float:
    """Return the microseconds of one of the `count` things that `work` does."""
    best = min(_timed_ns(work) for _ in range(NUM_RUNS))
    return best / count / 1000


def _timed_ns(work: Callable[[], None]) -> int:
    start_ns = time.perf_counter_ns()
    work()
    return time.perf_counter_ns() - start_ns


def report(name: str, hook: Hook | None) -> None:
    """Measure and print one kind of listener."""
    numbers = itertools.count()

    def calls(count: int, num_tokens: int) -> Callable[[], None]:
        def work() -> None:
            for _ in range(count):
                call(hook, next(numbers), num_tokens)

        return work

    call_us = least_us(calls(NUM_CALLS, 1), NUM_CALLS)
    long_us = least_us(calls(3, NUM_TOKENS + 1), 3)
    print(f"{name:32} call {call_us:6.1f} us   token {(long_us - call_us) / NUM_TOKENS:5.2f} us")


def traced(sample_ratio: float, url: str) -> tuple[Tracing, Hook]:
    """Return spans beside metrics, sent to the collector at `url`."""
    tracing = Tracing(otlp_exporter(url), sample_ratio=sample_ratio, wall_time_ns=time.time_ns)
    return tracing, also(Metrics(), CallEnded, tracing.on_call)


def page_ms(endpoints: Sequence[str], statuses: Sequence[int]) -> float:
    """Return the milliseconds of a scrape after every caller had every status from every endpoint."""
    metrics = Metrics()
    for caller, endpoint, status in itertools.product(CALLERS, endpoints, statuses):
        metrics(
            CallEnded(
                request_id="r",
                method="POST",
                endpoint=endpoint,
                status=status,
                duration_ns=1,
                token_id=caller.token_id,
            )
        )

    def scrape() -> None:
        metrics.page()

    return least_us(scrape, 1) / 1000


def main() -> None:
    """Measure everything."""
    report("nobody listens", None)
    report("metrics", Metrics())
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, says nothing: the queue fills
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        for name, ratio in (("metrics, 10 % traced", 0.1), ("metrics, all traced", 1.0)):
            tracing, hook = traced(ratio, url)
            report(f"{name}, silent collector", hook)
            tracing.close(0)
        tracing, hook = traced(1.0, url)
        for number in range(2 * MAX_QUEUED):
            call(hook, number, 0)
        report("metrics, all traced, queue full", hook)
        tracing.close(0)
    print(f"scrape, 32 of 100 tokens, 1 route    {page_ms(['/a'], [200]):5.1f} ms")
    print(f"scrape, 32 of 100 tokens, 9 each     {page_ms(['/a', '/b', '/c'], [200, 429, 503]):5.1f} ms")


if __name__ == "__main__":
    main()
