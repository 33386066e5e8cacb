"""Python values over a pipe between a run's own processes: each pickled, after its length in eight bytes."""

import asyncio
import pickle

_LENGTH_BYTES = 8


def frame(value: object) -> bytes:
    """Return the bytes of a value."""
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


async def read_frame(reader: asyncio.StreamReader) -> object:
    """Return the next value; raises EOFError when there is none, or half a one."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
        return pickle.loads(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise EOFError("the other process has ended") from error
