"""Who is measured when: by turns, with one seed a round, and nothing of an incomplete round."""

import asyncio
from dataclasses import replace

import pytest

from headway.core.errors import ConfigError
from headway.lab.endpoint import parse_endpoint
from headway.lab.measurement import RunResult
from headway.lab.rounds import WARM_UP_REQUESTS, Plan, Round, Turn, orders, take_turns
from headway.lab.run_options import RunOptions
from headway.lab.trace_replay import TraceReplay
from support.lab_runs import answered, run_of
from support.scripted_stream import play

pytestmark = pytest.mark.anyio

A = RunOptions(endpoint=parse_endpoint("localhost:1"), seed=10, num_requests=20, arrival="closed:4")
B = replace(A, endpoint=parse_endpoint("localhost:2"), model="chosen")


class Server:
    """Answers at once, and keeps what was asked; `stop_at` cancels or interrupts that measurement, counted from 0."""

    def __init__(self, stop_at: int | None = None, how: str = "", ok: bool = True) -> None:
        self.asked: list[RunOptions] = []
        self._stop_at, self._how, self._ok = stop_at, how, ok

    async def measure(self, options: RunOptions) -> RunResult:
        self.asked.append(options)
        stops = len(self.asked) - 1 == self._stop_at
        if stops and self._how == "cancelled":
            raise asyncio.CancelledError
        exchange = answered() if self._ok else play(status=503)
        return run_of(replace(options, model=options.model or "found"), [exchange], interrupted=stops)


def test_who_begins_alternates() -> None:
    assert {tuple(orders(3, seed)) for seed in range(20)} == {
        (("A", "B"), ("B", "A"), ("A", "B")),
        (("B", "A"), ("A", "B"), ("B", "A")),
    }
    assert orders(7, 5) == orders(7, 5)


async def test_both_sides_of_a_round_are_asked_the_same() -> None:
    server, turns, rounds = Server(), list[Turn](), list[Round]()
    done = await take_turns(Plan(a=A, b=B, num_rounds=5), turns.append, rounds.append, measure=server.measure)
    assert not done.interrupted
    assert not done.same_server
    assert done.rounds == tuple(rounds)
    assert [each.order for each in rounds] == orders(5, 10)
    assert [(each.a.options.seed, each.b.options.seed) for each in rounds] == [
        (seed, seed) for seed in range(11, 16)
    ]
    warm_up, counted = server.asked[:2], server.asked[2:]
    assert [(each.num_requests, each.arrival) for each in warm_up] == [(WARM_UP_REQUESTS, "closed:1")] * 2
    assert {(each.num_requests, each.arrival) for each in counted} == {(20, "closed:4")}
    assert [each.model for each in counted[:2]] in (["found", "chosen"], ["chosen", "found"])
    assert [turn.side for turn in turns[2:]] == [side for order in orders(5, 10) for side in order]
    assert [turn.number for turn in turns] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


async def test_one_server_is_not_asked_the_same_twice() -> None:
    done = await take_turns(Plan(a=A, b=A, num_rounds=5), measure=Server().measure)
    seeds = [side.options.seed for each in done.rounds for side in (each.a, each.b)]
    assert done.same_server
    assert sorted(seeds) == list(range(11, 21))


@pytest.mark.parametrize("how", ["cancelled", "interrupted"])
@pytest.mark.parametrize(("stop_at", "num_complete"), [(0, 0), (1, 0), (2, 0), (3, 0), (4, 1), (7, 2)])
async def test_an_incomplete_round_is_left_out(how: str, stop_at: int, num_complete: int) -> None:
    done = await take_turns(Plan(a=A, b=B, num_rounds=5), measure=Server(stop_at, how).measure)
    assert done.interrupted
    assert len(done.rounds) == num_complete


async def test_a_side_that_answers_nothing_is_told_before_the_first_round() -> None:
    server = Server(ok=False)
    with pytest.raises(ConfigError, match=r"^A, localhost:1, answered nothing .*: refused_503\."):
        await take_turns(Plan(a=A, b=B, num_rounds=5), measure=server.measure)
    assert len(server.asked) == 1


async def test_a_ladder_is_no_load_to_take_turns_at() -> None:
    ladder = replace(A, arrival="ladder:target_rate=50")
    with pytest.raises(ConfigError, match="not up a ladder"):
        await take_turns(Plan(a=ladder, b=ladder, num_rounds=5), measure=Server().measure)


async def test_a_trace_that_is_sped_up_is_warmed_up_all_the_same() -> None:
    """A replay's times are refused where an arrival replaces them."""
    server = Server()
    trace = replace(A, arrival=None, workload="trace:x", replay=TraceReplay(speed=2, spread_ns="grid"))
    await take_turns(Plan(a=trace, b=trace, num_rounds=5), measure=server.measure)
    assert {each.replay for each in server.asked[:2]} == {TraceReplay()}
    assert {each.replay for each in server.asked[2:]} == {trace.replay}
