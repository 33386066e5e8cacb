"""Decides whether there are spans, and imports OpenTelemetry's SDK only then."""

import os
import time
from typing import TYPE_CHECKING, Final

from headway.core.errors import ConfigError
from headway.obs.config import TraceConfig

if TYPE_CHECKING:
    from headway.obs.tracing import Tracing

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def open_tracing(config: TraceConfig) -> "Tracing | None":
    """Return what makes spans; None where neither `config` nor OpenTelemetry's environment variables name a collector.

    Raises ConfigError where the SDK is missing.
    """
    if config.endpoint is None and not any(os.environ.get(name) for name in _ENDPOINTS):
        return None
    try:
        from headway.obs.tracing import Tracing, otlp_exporter
    except ImportError as error:
        raise ConfigError(
            "Traces are configured (--otlp, or OTEL_EXPORTER_OTLP_ENDPOINT), which needs OpenTelemetry: "
            '`make extras`, or pip install "headway[gateway]".'
        ) from error
    return Tracing(
        otlp_exporter(config.endpoint), sample_ratio=config.sample_ratio, wall_time_ns=time.time_ns
    )
