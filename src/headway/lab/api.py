"""The lab from Python: one call, one typed result.

import headway.lab

result = headway.lab.run("http://127.0.0.1:8000", workload="medium", arrival="poisson:2", requests=100)
print(result.summary.ttft.successes.percentiles["p50"])
"""

import math

import uvloop

from headway.core.clock import NS_PER_S
from headway.core.errors import ConfigError
from headway.lab.endpoint import parse_endpoint
from headway.lab.measurement import RunResult, measure
from headway.lab.run_options import RunOptions
from headway.lab.slo import parse_slo
from headway.lab.trace_replay import trace_replay


def run(
    url: str,
    *,
    model: str | None = None,
    api_key: str | None = None,
    workload: str = "light",
    arrival: str | None = None,
    requests: int | None = None,
    duration_s: float | None = None,
    output_tokens: int = 128,
    lines: int | None = None,
    trace_speed: float | None = None,
    spread_times: bool | float = False,
    bytes_per_token: tuple[float, float] | None = None,
    slo: str | None = None,
    seed: int = 0,
    processes: int | None = None,
) -> RunResult:
    """Measure an endpoint as `headway bench` does, whose options these are, and return the figures with every record.

    `spread_times` is True for the grid of the trace's format, or a number of seconds; `bytes_per_token` of an access log's
    prompts and answers. Blocks, and brings its own event loop; inside one, await `headway.lab.measurement.measure`. Raises
    ConfigError for what cannot be asked or an endpoint that does not answer.
    """
    for name, number in (
        ("requests", requests),
        ("duration_s", duration_s),
        ("output_tokens", output_tokens),
        ("spread_times", spread_times or None),
    ):
        if number is not None and not 0 < number < math.inf:
            raise ConfigError(f"{name} must be a number above 0, not {number}.")
    options = RunOptions(
        endpoint=parse_endpoint(url, api_key),
        model=model,
        workload=workload,
        arrival=arrival,
        lines=lines,
        replay=trace_replay(speed=trace_speed, spread_times=spread_times, bytes_per_token=bytes_per_token),
        num_requests=requests,
        duration_ns=None if duration_s is None else round(duration_s * NS_PER_S),
        output_tokens=output_tokens,
        slo=None if slo is None else parse_slo(slo),
        seed=seed,
        num_processes=processes,
    )
    return uvloop.run(measure(options))
