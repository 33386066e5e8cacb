"""Metrics of streams that survive: resumed, sent again, abandoned. `metrics` prints them."""

from collections import Counter
from collections.abc import Iterator
from typing import get_args

from prometheus_client.core import CounterMetricFamily, Metric

from headway.core.events import StreamAbandoned, StreamEventKind, StreamResent, StreamResumed


class StreamMetrics:
    """What became of resumable streams."""

    def __init__(self) -> None:
        self._resumes = {"resumed": 0, "resync": 0}
        self._num_replayed = 0
        self._resent: Counter[StreamEventKind] = Counter(dict.fromkeys(get_args(StreamEventKind), 0))
        self._num_abandoned = 0
        self._num_unacknowledged = 0

    def on_resumed(self, event: StreamResumed) -> None:
        """Count a client that came back."""
        self._resumes["resync" if event.resync else "resumed"] += 1
        self._num_replayed += event.replayed

    def on_resent(self, event: StreamResent) -> None:
        """Count events that were sent again."""
        self._resent[event.kind] += event.num_events

    def on_abandoned(self, event: StreamAbandoned) -> None:
        """Count a stream whose client did not come back."""
        self._num_abandoned += 1
        self._num_unacknowledged += event.num_unacknowledged

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        resumes = CounterMetricFamily(
            "headway_stream_resumes",
            "Times a client came back for a stream, and could go on or had to begin anew.",
            labels=("outcome",),
        )
        for outcome, count in self._resumes.items():
            resumes.add_metric((outcome,), count)
        yield resumes
        yield CounterMetricFamily(
            "headway_stream_replayed_events",
            "Events sent to clients that came back.",
            value=self._num_replayed,
        )
        resent = CounterMetricFamily(
            "headway_stream_resent_events",
            "Events sent again as nobody acknowledged them in time.",
            labels=("kind",),
        )
        for kind, count in self._resent.items():
            resent.add_metric((kind,), count)
        yield resent
        yield CounterMetricFamily(
            "headway_streams_abandoned", "Streams whose client did not come back.", value=self._num_abandoned
        )
        yield CounterMetricFamily(
            "headway_stream_unacknowledged_events",
            "Events of those that nobody had acknowledged.",
            value=self._num_unacknowledged,
        )
