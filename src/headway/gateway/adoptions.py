"""When a stream that was gone on with, and is without a holder again, may be gone on with the next time. Pure.

Each time costs a prefill. Where its log cannot be written, say on a full disk, it would be tried again with every lease that
runs out: the first time that is worth it, after that the wait doubles.
"""

from typing import Final, NamedTuple

from headway.core.clock import NS_PER_S
from headway.engine.lifecycle import Backoff


class _Waits(Backoff):
    """None after the first time, then half a minute, doubling to ten."""

    __slots__ = ()

    FIRST_S = 30.0
    MAX_S = 600.0


MAX_WAIT_NS: Final = round(_Waits.MAX_S * NS_PER_S)


class _Tried(NamedTuple):
    waits: _Waits
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
        tried = self._tried.get(stream_id)
        waits = (_Waits() if tried is None else tried.waits).after_end(0.0)
        self._tried[stream_id] = _Tried(waits, now_ns + round(waits.delay_s * NS_PER_S))

    def forget(self, now_ns: int) -> None:
        """Forget those that have not come back for as long as the longest wait after they might have: they have ended."""
        self._tried = {
            stream_id: tried
            for stream_id, tried in self._tried.items()
            if now_ns < tried.again_at_ns + MAX_WAIT_NS
        }
