from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from headway.obs.histogram import Histogram, family, label, text

BOUNDS_S = (0.001, 0.25, 10)
VALUES = st.text(max_size=8)


class One(Collector):
    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> list[Metric]:
        return [self._metric]


def read(page: str) -> list[tuple[str, dict[str, str], float]]:
    """Every sample as prometheus-client reads it, in one order."""
    samples = [each for metric in text_string_to_metric_families(page) for each in metric.samples]
    return sorted(
        ((each.name, dict(each.labels), each.value) for each in samples),
        key=lambda sample: (sample[0], sorted(sample[1].items())),
    )


@given(VALUES, VALUES, st.lists(st.integers(0, 20 * 10**9)))
def test_what_is_written_here_reads_as_what_prometheus_client_writes(
    first: str, second: str, durations_ns: list[int]
) -> None:
    histogram = Histogram(BOUNDS_S)
    for duration_ns in durations_ns:
        histogram.observe_ns(duration_ns)
    own = text("m", "Help.", [(f"{label('a', first)},{label('b', second)}", histogram)])
    registry = CollectorRegistry()
    theirs: HistogramMetricFamily = family("m", "Help.", ("a", "b"), [((first, second), histogram)])
    registry.register(One(theirs))
    assert read(own) == read(generate_latest(registry).decode())


def test_without_series_there_is_still_the_name() -> None:
    assert text("m", "Help.", []) == "# HELP m Help.\n# TYPE m histogram\n"
