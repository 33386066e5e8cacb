"""When a stream that was gone on with, and is without a holder again, may be gone on with the next time. Pure.

Each time costs a prefill. Where its log cannot be written, say on a full disk, it would be tried again with every lease that
runs out: the first time that is worth it, after that the wait doubles.
"""

from typing import NamedTuple

from headway.core.clock import NS_PER_S

FIRST_WAIT_NS = 30 * NS_PER_S
MAX_WAIT_NS = 600 * NS_PER_S


class _Tried(NamedTuple):
    times: int
    again_at_ns: int


class Adoptions:
    """Owns what is known of streams that were gone on with here; bounded, as what is over is forgotten."""

    def __init__(self) -> None:
        self._tried: dict[str, _Tried] = {}

    def __len__(self) -> int:
        """Streams remembered."""
        return len(self._tried)

    def may(self, stream_id: str, now_ns: int) -> bool:
        """Whether it is time."""
        tried = self._tried.get(stream_id)
        return tried is None or now_ns >= tried.again_at_ns

    def note(self, stream_id: str, now_ns: int) -> None:
        """A stream is gone on with."""
        times = self._tried[stream_id].times if stream_id in self._tried else 0
        wait_ns = min(MAX_WAIT_NS, FIRST_WAIT_NS << min(times - 1, 16)) if times else 0
        self._tried[stream_id] = _Tried(times + 1, now_ns + wait_ns)

    def forget(self, now_ns: int) -> None:
        """Forget those that have not come back for as long as the longest wait after they might have: they have ended."""
        self._tried = {
            stream_id: tried
            for stream_id, tried in self._tried.items()
            if now_ns < tried.again_at_ns + MAX_WAIT_NS
        }
