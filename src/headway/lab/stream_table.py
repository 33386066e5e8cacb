"""Reads streams: what each of several loads of one run asks for, and in whose name. Written as TOML, or as mappings.

    [[stream]]
    name = "scan"
    workload = "medium"
    arrival = "poisson:4"
    class = "low"
    tenant = "t1"

What a stream does not say is as the run's own options have it, but for its seed.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec

from headway.core.clock import NS_PER_S
from headway.core.errors import ConfigError
from headway.core.request import ServiceClass
from headway.lab.arrival_grammar import parse_arrival
from headway.lab.arrivals import ClosedSteps
from headway.lab.ladder_rules import LadderRules
from headway.lab.request_headers import check_session, checked_header, joined
from headway.lab.run_options import RunOptions, Stream

SEEDS_PER_RUN = 1_000
"""A stream's seed is the run's times so many, plus its place: two streams, or two runs, send nothing alike by accident."""

_Seconds = Annotated[float, msgspec.Meta(gt=0, le=10**9)]
_Count = Annotated[int, msgspec.Meta(ge=1)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"^[!-~]+$")]


class _Table(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: _Name
    workload: str | None = None
    arrival: str | None = None
    requests: _Count | None = None
    duration_s: _Seconds | None = None
    output_tokens: _Count | None = None
    lines: _Count | None = None
    seed: Annotated[int, msgspec.Meta(ge=0)] | None = None
    service_class: ServiceClass | None = msgspec.field(default=None, name="class")
    tenant: str | None = None
    ttft_ms: _Count | None = None
    itl_ms: _Count | None = None
    skip: Annotated[int, msgspec.Meta(ge=0)] = 0
    sessions: bool | None = None
    headers: dict[str, str] = {}


class _File(msgspec.Struct, forbid_unknown_fields=True):
    stream: list[_Table]


def read_streams(path: Path) -> list[Mapping[str, object]]:
    """Return the tables of a TOML file; raises ConfigError for one that cannot be read or holds something else."""
    try:
        found = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:  # of TOML, and of UTF-8
        raise ConfigError(f"{path} is not TOML: {error}.") from error
    if found.keys() != {"stream"} or not isinstance(found["stream"], list):
        raise ConfigError(f"{path} holds no streams: write a table [[stream]] for each, and nothing else.")
    return found["stream"]


def with_streams(base: RunOptions, tables: Sequence[Mapping[str, object]]) -> RunOptions:
    """Return options that offer these streams at once; raises ConfigError for what no stream says."""
    if base.num_processes is not None:
        raise ConfigError("Streams are sent by one process: --processes has no use for them.")
    if not tables:
        raise ConfigError("There is no stream: write one table for each.")
    streams = tuple(_stream(base, index, table) for index, table in enumerate(tables))
    names = [stream.name for stream in streams]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"Two streams are called {doubled[0]!r}.")
    told = f"{len(streams)} stream{'s' if len(streams) > 1 else ''}"
    return replace(base, workload=told, arrival="together", streams=streams)


def _stream(base: RunOptions, index: int, table: Mapping[str, object]) -> Stream:
    try:
        asked = msgspec.convert(table, type=_Table)
    except msgspec.ValidationError as error:
        raise ConfigError(f"Stream {index + 1}: {error}.") from error
    arrival = base.arrival if asked.arrival is None else asked.arrival
    if arrival is not None and isinstance(parse_arrival(arrival), LadderRules | ClosedSteps):
        raise ConfigError(f"Stream {asked.name!r}: {arrival} is several loads in turn; a stream is one.")
    if asked.skip and (asked.workload or base.workload).startswith("trace:"):
        raise ConfigError(
            f"Stream {asked.name!r}: skip is for workloads that go on for ever, which a trace does not."
        )
    seed = base.seed * SEEDS_PER_RUN + index if asked.seed is None else asked.seed
    sessions = base.session is not None if asked.sessions is None else asked.sessions
    own = tuple(checked_header(name, value) for name, value in _headers(asked))
    options = replace(
        base,
        endpoint=replace(base.endpoint, headers=joined(base.endpoint.headers, own)),
        workload=asked.workload or base.workload,
        arrival=arrival,
        lines=base.lines if asked.lines is None else asked.lines,
        num_requests=asked.requests or base.num_requests,
        duration_ns=base.duration_ns if asked.duration_s is None else round(asked.duration_s * NS_PER_S),
        output_tokens=asked.output_tokens or base.output_tokens,
        seed=seed,
        num_processes=1,
        num_skipped=asked.skip,
        session=f"lab-{asked.name}-{seed}" if sessions else None,
    )
    check_session(options.endpoint.headers, options.session)
    return Stream(name=asked.name, options=options)


def _headers(asked: _Table) -> Iterator[tuple[str, str]]:
    """Yield what says in whose name a stream asks, as docs/reference.md has it, then its other headers."""
    for name, value in (
        ("x-headway-class", asked.service_class),
        ("x-headway-tenant", asked.tenant),
        ("x-headway-ttft-ms", asked.ttft_ms),
        ("x-headway-itl-ms", asked.itl_ms),
    ):
        if value is not None:
            yield name, str(value)
    yield from asked.headers.items()
