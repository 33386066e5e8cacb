"""A response's head leaves with its first bytes, or by itself if they do not come at once."""

import asyncio

import pytest

from headway.cli.held_head import HeldHead


class Written(asyncio.Transport):
    """A transport that keeps each write apart."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


@pytest.mark.anyio
async def test_head_and_first_bytes_are_one_write() -> None:
    transport = Written()
    held = HeldHead(transport, asyncio.get_running_loop())
    for part in (b"head ", b"one", b"two"):
        held.write(part)
    await asyncio.sleep(0)
    assert transport.writes == [b"head one", b"two"]


@pytest.mark.anyio
async def test_a_head_alone_goes_at_the_turns_end() -> None:
    transport = Written()
    held = HeldHead(transport, asyncio.get_running_loop())
    held.write(b"head")
    assert transport.writes == []
    await asyncio.sleep(0)
    held.write(b"one")
    assert transport.writes == [b"head", b"one"]


@pytest.mark.anyio
async def test_closing_passes_the_head_on_and_nothing_is_written_after_it() -> None:
    transport = Written()
    held = HeldHead(transport, asyncio.get_running_loop())
    held.write(b"head")
    held.close()
    await asyncio.sleep(0)
    assert (transport.writes, held.is_closing()) == ([b"head"], True)


@pytest.mark.anyio
async def test_a_connection_that_is_lost_meanwhile_gets_nothing() -> None:
    transport = Written()
    held = HeldHead(transport, asyncio.get_running_loop())
    held.write(b"head")
    transport.close()
    await asyncio.sleep(0)
    assert transport.writes == []
