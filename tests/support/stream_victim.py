"""Appends to streams in an SQLite file until it is killed, and says on stdout what it was promised is kept.

python stream_victim.py FILE NUM_STREAMS
"""

import asyncio
import itertools
import sys
import time
from pathlib import Path

from headway.streams.limits import StreamLimits
from headway.streams.record import Entry
from headway.streams.sqlite_log import SqliteLog


async def write(log: SqliteLog, stream_id: str) -> None:
    lease = await log.create(stream_id, "tok", b"meta")
    last_seq = 0
    for number in itertools.count():
        entries = [Entry("content", f"{number}.{part}".encode()) for part in range(1 + number % 3)]
        last_seq = await log.append(lease, last_seq, entries, b"%d " % number) or 0
        print(stream_id, number, last_seq, flush=True)


async def main(path: Path, num_streams: int) -> None:
    log = await SqliteLog.open(path, StreamLimits(max_events=10**6), lambda: int(time.time() * 1000))
    await asyncio.gather(*(write(log, f"{number:032x}") for number in range(num_streams)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
