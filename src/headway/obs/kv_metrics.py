"""Metrics of what the KV cache keeps besides what runs: conversations, and blocks that left it for memory or disk.

`engine_metrics` has them printed; it also adds up what earlier engine processes counted (`bases`).
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headway.core.messages import EngineStats

_TIER_COUNTERS: Final = {
    "kv_offloaded_blocks": "KV blocks that left the cache and were kept, by tier.",
    "kv_offloaded_bytes": "Bytes of those.",
    "kv_restored_blocks": "KV blocks that came back into the cache instead of being computed, by tier.",
    "kv_restored_bytes": "Bytes of those.",
}


class ModelStats(NamedTuple):
    """One model's: the last report of its engine, and what those before it counted, by the names of `totals`."""

    model: str
    stats: EngineStats
    bases: Counter[str]


def totals(stats: EngineStats) -> dict[str, int]:
    """Return what must not fall when an engine is restarted; names of tiers' counters end in the tier."""
    return {
        "kv_lost_blocks": stats.lost_kv_blocks_total,
        "kv_offloaded_blocks host": stats.host_offloaded_blocks_total,
        "kv_offloaded_bytes host": stats.host_offloaded_bytes_total,
        "kv_restored_blocks host": stats.host_restored_blocks_total,
        "kv_restored_bytes host": stats.host_restored_bytes_total,
        "kv_offloaded_blocks disk": stats.disk_offloaded_blocks_total,
        "kv_offloaded_bytes disk": stats.disk_offloaded_bytes_total,
        "kv_restored_blocks disk": stats.disk_restored_blocks_total,
        "kv_restored_bytes disk": stats.disk_restored_bytes_total,
    }


def collect(models: list[ModelStats]) -> Iterator[Metric]:
    """Yield the metrics of all models."""
    sessions = GaugeMetricFamily(
        "headway_sessions",
        "Conversations by state: active, idle (in the KV cache), parked.",
        labels=("model", "state"),
    )
    held = GaugeMetricFamily(
        "headway_kv_tier_bytes",
        "Bytes of KV blocks kept outside the cache, by tier.",
        labels=("model", "tier"),
    )
    lost = CounterMetricFamily(
        "headway_kv_lost_blocks",
        "KV blocks that should have come back and were damaged or gone.",
        labels=("model",),
    )
    for name, stats, bases in models:
        sessions.add_metric((name, "active"), stats.num_sessions_active)
        sessions.add_metric((name, "idle"), stats.num_sessions_idle)
        sessions.add_metric((name, "parked"), stats.num_sessions_parked)
        held.add_metric((name, "host"), stats.host_kv_bytes)
        held.add_metric((name, "disk"), stats.disk_kv_bytes)
        lost.add_metric((name,), bases["kv_lost_blocks"] + stats.lost_kv_blocks_total)
    yield from (sessions, held, lost)
    for kind, help_ in _TIER_COUNTERS.items():
        family = CounterMetricFamily(f"headway_{kind}", help_, labels=("model", "tier"))
        for name, stats, bases in models:
            counted = totals(stats)
            for tier in ("host", "disk"):
                family.add_metric((name, tier), bases[f"{kind} {tier}"] + counted[f"{kind} {tier}"])
        yield family
