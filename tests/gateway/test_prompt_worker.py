import asyncio
import threading
from collections.abc import AsyncIterator
from functools import partial

import pytest

from headway.core.caller import Caller
from headway.core.errors import QueueFull
from headway.gateway.prompt_queue import AHEAD_BYTES
from headway.gateway.prompt_worker import AT_ONCE_BYTES, LONG_BYTES, PromptWorker

pytestmark = pytest.mark.anyio


@pytest.fixture
async def worker() -> AsyncIterator[PromptWorker]:
    worker = PromptWorker(max_pending=3, max_pending_bytes=100, at_once_bytes=-1)
    yield worker
    worker.close()


async def test_jobs_run_one_after_another_on_one_other_thread(worker: PromptWorker) -> None:
    futures = [worker.submit_nowait(threading.get_ident, 1) for _ in range(3)]
    idents = {await future for future in futures}
    assert len(idents) == 1
    assert threading.get_ident() not in idents


async def test_a_short_job_is_done_at_once_unless_another_one_waits() -> None:
    worker = PromptWorker(max_pending=9, max_pending_bytes=10**6)
    here = threading.get_ident()
    assert worker.submit_nowait(threading.get_ident, AT_ONCE_BYTES).result() == here
    assert await worker.submit_nowait(threading.get_ident, AT_ONCE_BYTES + 1) != here
    gate = threading.Event()
    first = worker.submit_nowait(lambda: gate.wait(30), AT_ONCE_BYTES + 1)
    second = worker.submit_nowait(threading.get_ident, 1)
    assert not second.done()
    gate.set()
    assert await first
    assert await second != here
    with pytest.raises(ZeroDivisionError):
        worker.submit_nowait(lambda: 1 // 0, 1).result()
    worker.close()
    with pytest.raises(RuntimeError, match="closed"):
        worker.submit_nowait(lambda: 1, 1)


async def test_a_job_that_raises_raises_where_it_is_awaited(worker: PromptWorker) -> None:
    with pytest.raises(ZeroDivisionError):
        await worker.submit_nowait(lambda: 1 // 0, 1)
    assert worker.num_pending == 0


async def test_a_library_that_panics_is_an_error_like_any_other(worker: PromptWorker) -> None:
    class Panic(BaseException):
        """Stands for what PyO3 raises when Rust code panics: no Exception."""

    def job() -> None:
        raise Panic

    with pytest.raises(RuntimeError, match="a library failed"):
        await worker.submit_nowait(job, 1)
    assert await worker.submit_nowait(lambda: 2, 1) == 2


async def test_jobs_beyond_the_bounds_are_refused_and_room_comes_back(worker: PromptWorker) -> None:
    gate = threading.Event()
    running = worker.submit_nowait(lambda: gate.wait(30), 10)
    waiting = worker.submit_nowait(lambda: 2, 80)
    with pytest.raises(QueueFull):
        worker.submit_nowait(lambda: 3, 11)
    third = worker.submit_nowait(lambda: 3, 10)
    with pytest.raises(QueueFull):
        worker.submit_nowait(lambda: 4, 0)
    waiting.cancel()
    third.cancel()
    await asyncio.wait([waiting, third])
    gate.set()
    assert await running
    assert await worker.submit_nowait(lambda: 5, 100) == 5
    assert worker.num_pending == 0


ANN, BOB = Caller(user="ann"), Caller(user="bob")


BIG = AHEAD_BYTES + 1


@pytest.fixture
async def roomy() -> AsyncIterator[PromptWorker]:
    worker = PromptWorker(max_pending=100, max_pending_bytes=10 * BIG, at_once_bytes=-1)
    yield worker
    worker.close()


async def test_a_flood_gives_way_to_somebody_else(roomy: PromptWorker) -> None:
    gate = threading.Event()
    order: list[str] = []
    running = roomy.submit_nowait(lambda: gate.wait(30), BIG, ANN)
    flood = [roomy.submit_nowait(partial(order.append, f"ann{i}"), 2 * BIG, ANN) for i in range(4)]
    other = roomy.submit_nowait(partial(order.append, "bob"), 3 * BIG, BOB)
    with pytest.raises(QueueFull):
        await flood[3]
    gate.set()
    assert await running
    await asyncio.gather(*flood[:3], other)
    assert order == ["bob", "ann0", "ann1", "ann2"]
    assert roomy.num_pending == 0


async def test_no_prompt_of_ordinary_length_waits_for_a_long_one(roomy: PromptWorker) -> None:
    gate = threading.Event()
    long = roomy.submit_nowait(lambda: gate.wait(30), LONG_BYTES + 1, ANN)
    assert await roomy.submit_nowait(lambda: 2, LONG_BYTES, BOB) == 2
    assert not long.done()
    gate.set()
    assert await long


async def test_who_has_left_by_himself_is_not_told_that_he_was_pushed_out(roomy: PromptWorker) -> None:
    gate = threading.Event()
    running = roomy.submit_nowait(lambda: gate.wait(30), BIG, ANN)
    left = roomy.submit_nowait(lambda: 1, 8 * BIG, ANN)
    left.cancel()
    other = roomy.submit_nowait(lambda: 2, 2 * BIG, BOB)
    gate.set()
    assert await running
    assert await other == 2
    assert left.cancelled()


async def test_closing_ends_what_waits_and_what_was_handed_over() -> None:
    worker = PromptWorker(max_pending=100, max_pending_bytes=10 * BIG, at_once_bytes=-1)
    gate = threading.Event()
    running = worker.submit_nowait(lambda: gate.wait(30), 1)
    handed_over, waiting = worker.submit_nowait(lambda: 1, 1), worker.submit_nowait(lambda: 1, BIG)
    worker.close()
    gate.set()
    await asyncio.gather(running, handed_over, waiting, return_exceptions=True)
    assert handed_over.cancelled()
    assert waiting.cancelled()
    assert worker.num_pending == 0
    with pytest.raises(RuntimeError):
        worker.submit_nowait(lambda: 1, 1)


async def test_one_job_alone_may_have_any_size(worker: PromptWorker) -> None:
    assert await worker.submit_nowait(lambda: 1, 1000) == 1


async def test_a_cancelled_job_never_runs(worker: PromptWorker) -> None:
    gate = threading.Event()
    ran: list[int] = []
    running = worker.submit_nowait(lambda: gate.wait(30), 1)
    dropped = worker.submit_nowait(lambda: ran.append(1), 1)
    last = worker.submit_nowait(lambda: ran.append(2), 1)
    dropped.cancel()
    await asyncio.wait([dropped])
    gate.set()
    await running
    await last
    assert ran == [2]
