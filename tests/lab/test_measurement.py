"""One measurement from start to end, against a server that keeps a schedule."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headway.core.errors import ConfigError
from headway.lab.endpoint import Endpoint
from headway.lab.measurement import RunResult, measure
from headway.lab.null_server import NullServer, Schedule
from headway.lab.pacer import Pacer
from headway.lab.progress import LoadPlan
from headway.lab.run_options import RunOptions
from headway.lab.slo import Slo
from headway.lab.token_estimate import TokenEstimate
from headway.lab.trace_access_log import TokenRule
from headway.lab.trace_replay import TraceReplay
from headway.lab.traces import read_trace
from headway.lab.workload import TEMPLATE_TOKENS
from support.plain_server import as_json, serving

pytestmark = pytest.mark.anyio

MS = 1_000_000
TRACE = Path(__file__).parent / "data"


@asynccontextmanager
async def options(schedule: Schedule | None = None) -> AsyncIterator[RunOptions]:
    schedule = schedule or Schedule(ttft_ns=0, itl_ns=0, num_tokens=3)
    with Pacer() as pacer:
        loop = asyncio.get_running_loop()
        null = NullServer(schedule, pacer)
        async with await loop.create_server(null.protocol, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            try:
                yield RunOptions(endpoint=Endpoint(host="127.0.0.1", port=port, path="/v1"), model="m")
            finally:
                null.abort()
                await asyncio.sleep(0)  # for what `abort` has planned


async def test_a_run_finds_the_schedule() -> None:
    schedule = Schedule(ttft_ns=8 * MS, itl_ns=2 * MS, num_tokens=6)
    async with options(schedule) as asked:
        seen: list[object] = []
        found = await measure(
            replace(asked, arrival="constant:200", num_requests=20, slo=Slo(ttft_ns=10_000 * MS)), seen.append
        )
    summary = found.summary
    assert (summary.num_offered, summary.num_ok, len(seen), found.interrupted) == (20, 20, 20, False)
    assert (found.model, found.arrival) == ("m", "constant:200")
    assert summary.request_rate == pytest.approx(200)
    assert summary.output_tokens == 120
    assert 0 < summary.itl.n <= 100  # tokens that come together with the first have no interval
    assert summary.goodput is not None
    assert summary.goodput.fraction == 1
    for figure, least_ms in ((summary.ttft, 8), (summary.e2e, 18)):
        median = figure.successes.percentiles["p50"]
        assert median is not None
        assert median >= least_ms - 0.5


@pytest.mark.parametrize(
    ("change", "num_offered"),
    [
        ({"num_requests": 7}, 7),
        ({}, 100),
        ({"arrival": "closed:3", "num_requests": 10}, 10),
        ({"arrival": "closed:1,3,2", "num_requests": 4}, 12),
        ({"arrival": "closed:2,3", "num_requests": 4, "num_processes": 2}, 8),
        ({"arrival": "stages:100@100ms,constant"}, 10),
        ({"workload": "multi-turn:3", "num_requests": 7}, 9),
        ({"workload": "multi-turn:3", "num_requests": 7, "arrival": "constant:500"}, 9),
        ({"workload": "multi-turn:3", "num_requests": 6, "arrival": "constant:500"}, 6),
        ({"workload": "multi-turn:3", "num_requests": 7, "arrival": "closed:2", "num_processes": 2}, 9),
        ({"workload": "shared-prefix:2:3", "lines": 5}, 6),
        ({"arrival": "constant:100", "duration_ns": 50 * MS}, 5),
    ],
)
async def test_a_run_ends_where_it_is_told_to(change: dict[str, object], num_offered: int) -> None:
    async with options() as asked:
        found = await measure(replace(asked, **change))  # type: ignore[arg-type]
    assert found.summary.num_offered == num_offered
    assert found.summary.num_ok == num_offered


async def test_steps_of_users_are_a_curve_and_no_warm_up() -> None:
    async with options(Schedule(ttft_ns=5 * MS, itl_ns=5 * MS, num_tokens=6)) as asked:
        found = await measure(replace(asked, arrival="closed:1,4", num_requests=12))
    crowds = {crowd.least: crowd.num_ok for crowd in found.summary.by_concurrency}
    assert sum(crowds.values()) == 24
    assert crowds[1] >= 12
    assert max(crowds) == 3  # 3 to 4
    assert found.summary.warm_up.steady is None


async def test_a_trace_brings_its_own_arrivals() -> None:
    async with options() as asked:
        found = await measure(
            replace(
                asked, workload=f"trace:{TRACE / 'mooncake.jsonl'}", num_requests=2, duration_ns=2_000 * MS
            )
        )
    assert found.arrival == "trace"
    assert found.summary.num_offered >= 1


async def test_users_ask_a_trace_to_its_end() -> None:
    async with options() as asked:
        found = await measure(
            replace(asked, workload=f"trace:{TRACE / 'mooncake.jsonl'}", arrival="closed:2")
        )
    assert found.summary.num_ok == len(read_trace(TRACE / "mooncake.jsonl").rows)


async def test_a_trace_is_replayed_as_it_was_asked_for() -> None:
    mooncake = f"trace:{TRACE / 'mooncake.jsonl'}"
    async with options() as asked:
        found = await measure(replace(asked, workload=mooncake, replay=TraceReplay(speed=100)))
        spread = await measure(
            replace(asked, workload=mooncake, replay=TraceReplay(speed=100, spread_ns="grid"))
        )
    for run in (found, spread):
        assert run.trace is not None
        assert (run.trace.num_rows, run.trace.num_bad, run.trace.num_distinct_times) == (8, 2, 4)
    assert [ms for ms in starts_ms(found) if ms < 30] == [0, 0]
    assert starts_ms(found)[2:5] == [30.52] * 3
    assert len(set(starts_ms(spread))) == 8
    assert all(
        0 <= after - before < 30 for before, after in zip(starts_ms(found), starts_ms(spread), strict=True)
    )


def starts_ms(found: RunResult) -> list[float]:
    assert found.start_ns is not None
    return sorted((each.stamps.intended_ns - found.start_ns) / MS for each in found.exchanges)


async def test_a_cancelled_run_tells_what_was_over() -> None:
    async with options() as asked:
        enough = asyncio.Event()
        over = 0

        def count(_: object) -> None:
            nonlocal over
            over += 1
            if over == 5:
                enough.set()

        task = asyncio.create_task(measure(replace(asked, num_requests=1_000_000), count))
        await enough.wait()
        task.cancel()
        found = await task
    assert found.interrupted
    assert found.summary.num_ok >= 5


async def test_a_late_client_is_not_believed() -> None:
    async with options() as asked:

        def stall(_: object) -> None:
            end_ns = asyncio.get_running_loop().time() + 0.03
            while asyncio.get_running_loop().time() < end_ns:
                pass

        found = await measure(
            replace(asked, arrival="constant:1000", num_requests=20, num_processes=1), stall
        )
    assert not found.believable


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"workload": f"trace:{TRACE / 'mooncake.jsonl'}", "arrival": "closed:1,2"}, "all of a trace"),
        ({"arrival": "ladder:high_ms=300", "slo": Slo(ttft_ns=MS)}, "one of them"),
        ({"arrival": "sometimes"}, "--arrival"),
        ({"workload": "heavy"}, "heavy"),
        ({"workload": "trace:/nonexistent"}, "nonexistent"),
        ({"lines": 20}, "no use"),
        ({"replay": TraceReplay(speed=2)}, "--trace-speed is for traces"),
        (
            {
                "workload": f"trace:{TRACE / 'mooncake.jsonl'}",
                "arrival": "closed:1",
                "replay": TraceReplay(spread_ns=1),
            },
            "--arrival closed:1 replaces",
        ),
        (
            {"workload": f"trace:{TRACE / 'mooncake.jsonl'}", "replay": TraceReplay(tokens=TokenRule())},
            "access logs alone",
        ),
    ],
)
async def test_what_cannot_be_run_is_told_before_anything_is_sent(
    change: dict[str, object], message: str
) -> None:
    nobody = RunOptions(endpoint=Endpoint(host="127.0.0.1", port=1, path="/v1"), model="m")
    with pytest.raises(ConfigError, match=message):
        await measure(replace(nobody, **change))  # type: ignore[arg-type]


async def test_lengths_that_do_not_fit_the_model_are_refused_before_anything_is_sent() -> None:
    asked: list[str] = []

    def answer(_method: str, path: str, _body: bytes) -> tuple[int, bytes]:
        asked.append(path)
        return as_json({"data": [{"id": "m", "max_model_len": 1000}]} if path == "/v1/models" else {})

    async with serving(answer) as endpoint:
        for model in (None, "m"):
            with pytest.raises(ConfigError, match="1000"):
                await measure(RunOptions(endpoint=endpoint, model=model, workload="context:512,1k"))
    assert set(asked) == {"/v1/models", "/tokenize"}


async def test_only_what_is_sent_of_a_trace_has_to_fit_the_model() -> None:
    needed = [
        (row.input_tokens or 0) + (row.output_tokens or 0) + TEMPLATE_TOKENS
        for row in read_trace(TRACE / "mooncake.jsonl").rows
    ]
    assert max(needed) > needed[0]

    def answer(_method: str, path: str, _body: bytes) -> tuple[int, bytes]:
        models = {"data": [{"id": "m", "max_model_len": needed[0]}]}
        return as_json(models if path == "/v1/models" else {})

    async with serving(answer) as endpoint:
        asked = RunOptions(endpoint=endpoint, workload=f"trace:{TRACE / 'mooncake.jsonl'}")
        with pytest.raises(ConfigError, match="do not fit"):
            await measure(asked)
        found = await measure(replace(asked, num_requests=1))
    assert found.summary.num_offered == 1
    assert found.token_estimate == TokenEstimate(source="assumed")


async def test_lengths_are_made_by_the_servers_count() -> None:
    prompts: list[str] = []

    def answer(_method: str, path: str, body: bytes) -> tuple[int, bytes]:
        if path == "/tokenize":
            return as_json({"tokens": [0] * (len(json.loads(body)["prompt"]) // 10)})
        if path.endswith("completions"):
            prompts.append(json.loads(body)["messages"][0]["content"])
        return 503, b""

    async with serving(answer) as endpoint:
        found = await measure(
            RunOptions(endpoint=endpoint, model="m", workload="context:500", num_requests=2)
        )
    assert found.token_estimate is not None
    assert found.token_estimate.source == "server"
    assert len(prompts) == 2
    # Ten characters a token, and a little more: the server rounds down what it counts.
    assert all(4500 < len(prompt) <= 5010 for prompt in prompts)


@pytest.mark.parametrize(
    ("change", "num_requests", "duration_ns"),
    [
        ({}, 100, None),
        ({"arrival": "closed:2", "num_requests": 10, "workload": "multi-turn:4"}, 12, None),
        ({"arrival": "constant:500", "num_requests": 10, "workload": "multi-turn:4"}, 12, None),
        ({"arrival": "constant:100", "duration_ns": 50 * MS}, 5, 50 * MS),
        ({"arrival": "stages:100@100ms,constant"}, 10, None),
        ({"arrival": "closed:1", "duration_ns": 20 * MS}, None, 20 * MS),
        (
            {"workload": f"trace:{TRACE / 'mooncake.jsonl'}", "num_requests": 2, "arrival": "closed:1"},
            2,
            None,
        ),
    ],
)
async def test_what_is_known_of_a_load_is_told_when_it_begins(
    change: dict[str, object], num_requests: int | None, duration_ns: int | None
) -> None:
    plans: list[LoadPlan] = []
    running: list[int] = []
    async with options() as asked:
        found = await measure(
            replace(asked, **change),  # type: ignore[arg-type]
            lambda _: running.append(plans[0].num_running()),
            on_start=plans.append,
        )
    [plan] = plans
    assert (plan.num_requests, plan.duration_ns) == (num_requests, duration_ns)
    assert num_requests in (None, found.summary.num_offered)
    assert len(running) == found.summary.num_offered
    assert min(running) == running[-1] == plan.num_running() == 0
