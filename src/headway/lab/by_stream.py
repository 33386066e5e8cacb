"""A run's figures by stream: what each was offered and got. Pure functions over exchanges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.lab.admission import Admission, admission, admission_json
from headway.lab.arrival_table import itl_samples
from headway.lab.breakdown import Part, part, part_json
from headway.lab.distribution import Distribution, describe
from headway.lab.exchange import Exchange
from headway.lab.figures import distribution_json
from headway.lab.goodput import Goodput, failures, goodput
from headway.lab.slo import Slo
from headway.lab.tokens import token_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPart:
    """The figures of one stream."""

    part: Part
    admission: Admission
    failures: Mapping[str, int]
    itl: Distribution
    """Over tokens of requests that succeeded."""
    output_tokens: int
    goodput: Goodput | None
    """None = there is no SLO."""


def streams_of(exchanges: Sequence[Exchange]) -> dict[str, list[Exchange]]:
    """Return the exchanges of each stream, sorted by name; empty where the run had one."""
    groups: dict[str, list[Exchange]] = {}
    for exchange in exchanges:
        if exchange.stream:
            groups.setdefault(exchange.stream, []).append(exchange)
    return {name: groups[name] for name in sorted(groups)}


def by_stream(streams: Mapping[str, Sequence[Exchange]], slo: Slo | None) -> dict[str, StreamPart]:
    """Return the figures of each stream."""
    return {name: _stream_part(exchanges, slo) for name, exchanges in streams.items()}


def by_stream_json(parts: Mapping[str, StreamPart]) -> list[dict[str, object]]:
    """Return streams as JSON's types."""
    return [
        {
            "stream": name,
            **part_json(found.part),
            **admission_json(found.admission),
            "errors": dict(found.failures),
            "goodput": None if found.goodput is None else found.goodput.fraction,
            "itl_ms": distribution_json(found.itl),
            "output_tokens": found.output_tokens,
        }
        for name, found in parts.items()
    ]


def _stream_part(exchanges: Sequence[Exchange], slo: Slo | None) -> StreamPart:
    ok = [exchange for exchange in exchanges if exchange.ok]
    return StreamPart(
        part=part(exchanges),
        admission=admission(exchanges),
        failures=failures(exchanges),
        itl=describe(*itl_samples(ok)),
        output_tokens=sum(token_counts(exchange).total for exchange in ok),
        goodput=None if slo is None else goodput(slo, exchanges),
    )
