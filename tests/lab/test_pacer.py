"""Calls come in the order of their times, none too early, none left out; how late they are is a benchmark's business."""

import asyncio
import os
import time

import pytest
import uvloop

from headway.lab.pacer import Pacer

pytestmark = pytest.mark.anyio

MS = 1_000_000


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": uvloop.new_event_loop} if request.param == "uvloop" else {}


async def test_calls_come_in_order_and_never_early() -> None:
    called: list[tuple[int, int]] = []
    with Pacer() as pacer:
        start_ns = time.monotonic_ns()
        done = asyncio.Event()
        for offset in (7, 2, 5, 2, 0, 3):
            deadline_ns = start_ns + offset * MS
            pacer.call_at(deadline_ns, lambda d=deadline_ns: called.append((d, time.monotonic_ns())))  # type: ignore[misc]
        pacer.call_at(start_ns + 8 * MS, done.set)
        await done.wait()
    assert [(deadline_ns - start_ns) // MS for deadline_ns, _ in called] == [0, 2, 2, 3, 5, 7]
    assert all(now_ns >= deadline_ns for deadline_ns, now_ns in called)


async def test_what_is_due_already_is_called_but_not_from_within() -> None:
    called: list[str] = []
    with Pacer() as pacer:
        pacer.call_at(0, lambda: called.append("past"))
        pacer.call_at(time.monotonic_ns() - 5 * MS, lambda: called.append("just past"))
        assert called == []
        await pacer.sleep_until(time.monotonic_ns())
    assert called == ["past", "just past"]


async def test_an_earlier_call_is_not_kept_waiting_by_a_later_one() -> None:
    with Pacer() as pacer:
        pacer.call_at(time.monotonic_ns() + 3_600_000 * MS, lambda: pytest.fail("an hour too early"))
        await asyncio.wait_for(pacer.sleep_until(time.monotonic_ns() + MS), 30)


async def test_a_call_may_ask_for_another() -> None:
    times: list[int] = []
    with Pacer() as pacer:
        done = asyncio.Event()

        def again() -> None:
            times.append(time.monotonic_ns())
            if len(times) == 20:
                done.set()
            else:
                pacer.call_at(start_ns + len(times) * MS // 4, again)

        start_ns = time.monotonic_ns()
        pacer.call_at(start_ns, again)
        await done.wait()
    assert all(now_ns >= start_ns + number * MS // 4 for number, now_ns in enumerate(times))


async def test_a_stall_delays_calls_and_loses_none() -> None:
    called: list[int] = []
    with Pacer() as pacer:
        start_ns = time.monotonic_ns()
        for number in range(50):
            pacer.call_at(start_ns + number * MS, lambda n=number: called.append(n))  # type: ignore[misc]
        while time.monotonic_ns() < start_ns + 60 * MS:  # nothing else gets a turn
            pass
        assert called == []
        await pacer.sleep_until(start_ns + 50 * MS)
    assert called == list(range(50))


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    with Pacer() as pacer:
        sleeper = asyncio.create_task(pacer.sleep_until(time.monotonic_ns() + 2 * MS))
        await asyncio.sleep(0)
        sleeper.cancel()
        await pacer.sleep_until(time.monotonic_ns() + 4 * MS)
        assert sleeper.cancelled()


async def test_its_end_drops_what_was_to_come_and_closes_its_file() -> None:
    num_files = len(os.listdir("/proc/self/fd"))
    with Pacer() as pacer:
        pacer.call_at(time.monotonic_ns() + MS, lambda: pytest.fail("too late"))
    start_ns = time.monotonic_ns()
    with Pacer() as other:
        await other.sleep_until(start_ns + 3 * MS)
    assert len(os.listdir("/proc/self/fd")) == num_files
