"""The columns in which a run's records are kept, one row a request: a table of exchanges, and exchanges of a table.

docs/lab.md explains each column. Figures such as `ttft_ns` stand beside what they are taken from, for those who read a file
with a query; reading exchanges back passes them over. What an answer said is not kept.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, get_args

import pyarrow as pa

from headway.lab.deltas import DeltaKind, TokenUsage
from headway.lab.exchange import Answer, Exchange, Failure, FailureKind, Stamps, StreamEvent
from headway.lab.latency import e2e_ns, itl_ns, tpot_ns, ttft_ns
from headway.lab.tokens import token_counts

Read = Callable[[Exchange], object]


def _each(of: Callable[[StreamEvent], object]) -> Read:
    return lambda exchange: [of(event) for event in exchange.answer.events]


def _of_failure(of: Callable[[Failure], object]) -> Read:
    return lambda exchange: None if exchange.answer.failure is None else of(exchange.answer.failure)


def _of_usage(of: Callable[[TokenUsage], int | None]) -> Read:
    return lambda exchange: None if exchange.answer.usage is None else of(exchange.answer.usage)


def _list(of: pa.DataType, *, nullable: bool = False) -> pa.DataType:
    return pa.list_(pa.field("element", of, nullable=nullable))


_COLUMNS: Final[tuple[tuple[pa.Field, Read], ...]] = (
    (pa.field("conversation", pa.int64(), nullable=False), lambda exchange: exchange.conversation),
    (pa.field("turn", pa.int64(), nullable=False), lambda exchange: exchange.turn),
    (pa.field("label", pa.string(), nullable=False), lambda exchange: _text(exchange.label)),
    (pa.field("stream", pa.string(), nullable=False), lambda exchange: _text(exchange.stream)),
    (pa.field("intended_ns", pa.int64(), nullable=False), lambda exchange: exchange.stamps.intended_ns),
    (pa.field("dispatched_ns", pa.int64(), nullable=False), lambda exchange: exchange.stamps.dispatched_ns),
    (pa.field("written_ns", pa.int64()), lambda exchange: exchange.stamps.written_ns),
    (pa.field("first_byte_ns", pa.int64()), lambda exchange: exchange.stamps.first_byte_ns),
    (pa.field("ended_ns", pa.int64(), nullable=False), lambda exchange: exchange.stamps.ended_ns),
    (pa.field("connect_ns", pa.int64(), nullable=False), lambda exchange: exchange.stamps.connect_ns),
    (pa.field("tls_ns", pa.int64(), nullable=False), lambda exchange: exchange.stamps.tls_ns),
    (pa.field("failure", pa.string()), _of_failure(lambda failure: failure.kind)),
    (pa.field("failure_label", pa.string()), _of_failure(lambda failure: failure.label)),
    (pa.field("failure_status", pa.int64()), _of_failure(lambda failure: failure.status)),
    (pa.field("failure_code", pa.string()), _of_failure(lambda failure: _text(failure.code))),
    (pa.field("failure_message", pa.string()), _of_failure(lambda failure: _text(failure.message))),
    (pa.field("retry_after_s", pa.float64()), _of_failure(lambda failure: failure.retry_after_s)),
    (pa.field("finish_reason", pa.string()), lambda exchange: _text(exchange.answer.finish_reason)),
    (pa.field("has_usage", pa.bool_(), nullable=False), lambda exchange: exchange.answer.usage is not None),
    (pa.field("prompt_tokens", pa.int64()), _of_usage(lambda usage: usage.prompt_tokens)),
    (pa.field("completion_tokens", pa.int64()), _of_usage(lambda usage: usage.completion_tokens)),
    (pa.field("cached_tokens", pa.int64()), _of_usage(lambda usage: usage.cached_tokens)),
    (pa.field("event_ns", _list(pa.int64()), nullable=False), _each(lambda event: event.at_ns)),
    (pa.field("event_kind", _list(pa.string()), nullable=False), _each(lambda event: event.kind)),
    (pa.field("event_chars", _list(pa.int64()), nullable=False), _each(lambda event: event.num_chars)),
    (
        pa.field("event_tokens", _list(pa.int64(), nullable=True), nullable=False),
        _each(lambda event: event.num_tokens),
    ),
    (pa.field("ttft_ns", pa.int64()), ttft_ns),
    (pa.field("e2e_ns", pa.int64()), e2e_ns),
    (pa.field("tpot_ns", pa.float64()), tpot_ns),
    (pa.field("itl_ns", pa.float64()), itl_ns),
    (pa.field("output_tokens", pa.int64(), nullable=False), lambda exchange: token_counts(exchange).total),
)

_WARM_UP: Final = pa.field("warm_up", pa.bool_(), nullable=False)
_STEP: Final = pa.field("step", pa.int64())
SCHEMA: Final = pa.schema([*(field for field, _ in _COLUMNS), _WARM_UP, _STEP])


def to_table(
    exchanges: Sequence[Exchange], warm_up: Sequence[bool] | None = None, steps: Sequence[int] | None = None
) -> pa.Table:
    """Return a row for each exchange, in their order.

    `warm_up`: which of them latencies are not of, none by default; `steps`: which step of a ladder each is of, from 1.
    """
    columns = [
        pa.array([read(exchange) for exchange in exchanges], type=field.type) for field, read in _COLUMNS
    ]
    columns.append(pa.array([False] * len(exchanges) if warm_up is None else warm_up, type=_WARM_UP.type))
    columns.append(pa.array([None] * len(exchanges) if steps is None else steps, type=_STEP.type))
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def to_exchanges(table: pa.Table) -> tuple[Exchange, ...]:
    """Return the exchanges that made a table of `SCHEMA`, without their texts; raises ValueError for what none can make."""
    return tuple(_exchange(row) for row in _rows(table))


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches(max_chunksize=10_000):  # bounds what Python's objects take at a time
        yield from batch.to_pylist()


def _exchange(row: dict[str, Any]) -> Exchange:
    failure = None
    if row["failure"] is not None:
        failure = Failure(
            kind=_one_of(FailureKind, row["failure"]),
            message=row["failure_message"] or "",
            status=row["failure_status"],
            code=row["failure_code"],
            retry_after_s=row["retry_after_s"],
        )
    usage = None
    if row["has_usage"]:
        usage = TokenUsage(
            prompt_tokens=row["prompt_tokens"],
            completion_tokens=row["completion_tokens"],
            cached_tokens=row["cached_tokens"],
        )
    answer = Answer(
        events=tuple(_events(row)), usage=usage, finish_reason=row["finish_reason"], failure=failure
    )
    names = (
        "intended_ns",
        "dispatched_ns",
        "written_ns",
        "first_byte_ns",
        "ended_ns",
        "connect_ns",
        "tls_ns",
    )
    return Exchange(
        stamps=Stamps(**{name: row[name] for name in names}),
        answer=answer,
        conversation=row["conversation"],
        turn=row["turn"],
        label=row["label"],
        stream=row["stream"],
    )


def _events(row: dict[str, Any]) -> Iterable[StreamEvent]:
    columns = (row["event_ns"], row["event_kind"], row["event_chars"], row["event_tokens"])
    for at_ns, kind, num_chars, num_tokens in zip(*columns, strict=True):
        yield StreamEvent(
            at_ns=at_ns, kind=_one_of(DeltaKind, kind), num_chars=num_chars, num_tokens=num_tokens
        )


def _one_of(literal: Any, word: str) -> Any:
    if word not in get_args(literal):
        raise ValueError(f"{word!r} is none of {', '.join(get_args(literal))}")
    return word


def _text(text: str | None) -> str | None:
    """Replace what Unicode cannot say, such as half of a surrogate pair in a message."""
    return None if text is None else text.encode(errors="backslashreplace").decode()
