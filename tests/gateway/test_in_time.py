"""What does not wait is given at once, and what waits for too long is ended."""

import asyncio

import pytest

from headway.gateway.in_time import in_time

pytestmark = pytest.mark.anyio


async def test_what_is_there_comes_without_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    def timeout(delay_s: float) -> None:
        raise AssertionError(delay_s)

    async def there() -> int:
        return 7

    monkeypatch.setattr(asyncio, "timeout", timeout)
    assert await in_time(there(), 0) == 7


async def test_what_waits_comes_when_it_comes() -> None:
    async def soon() -> int:
        for _ in range(3):
            await asyncio.sleep(0)
        return await asyncio.get_running_loop().run_in_executor(None, int, "7")

    assert await in_time(soon(), 60) == 7


async def test_what_waits_for_too_long_is_cancelled() -> None:
    ended = asyncio.Event()

    async def never() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(TimeoutError):
        await in_time(never(), 0)
    assert ended.is_set()


async def test_a_failure_passes_at_once_and_later() -> None:
    async def fails(waits: bool) -> None:
        if waits:
            await asyncio.sleep(0)
        raise KeyError(waits)

    for waits in (False, True):
        with pytest.raises(KeyError):
            await in_time(fails(waits), 60)
