"""A run's records in a Parquet file, with what was asked for and what it added up to, and back; docs/lab.md has the schema.

The file's key-value metadata holds `headway.schema`, a name that changes with the meaning of any column, `headway.run` (what
was asked for and when, JSON) and `headway.summary` (what `headway bench --json` prints). An endpoint's key is in none of it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headway import __version__
from headway.core.errors import ConfigError
from headway.lab.atomic_file import check_writable, write_whole_by
from headway.lab.exchange import Exchange
from headway.lab.measurement import LAG_LIMIT_NS, RunResult
from headway.lab.raw_columns import SCHEMA, to_exchanges, to_table
from headway.lab.summary import as_json

SCHEMA_NAME: Final = "headway-requests-2"
_SCHEMA_KEY: Final = b"headway.schema"
_RUN_KEY: Final = b"headway.run"
_SUMMARY_KEY: Final = b"headway.summary"
_WHAT: Final = "The raw file"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRun:
    """A run as a file holds it: a `RunResult` without its options' objects and its answers' texts."""

    headway: str
    """The version that measured."""
    asked: Mapping[str, Any]
    """The fields of `RunOptions` as JSON's types; the endpoint's without its key."""
    model: str
    arrival: str
    started_at: datetime
    start_ns: int | None
    lag_p99_ns: float
    interrupted: bool
    summary: Mapping[str, Any]
    """As `headway bench --json` printed it; written from Python by default without what was asked."""
    exchanges: tuple[Exchange, ...]
    warm_up: tuple[bool, ...]
    """Which exchanges were left out of latencies as warm-up."""
    steps: tuple[int | None, ...]
    """Which step of a ladder each exchange is of, from 1; None without a ladder."""

    @property
    def believable(self) -> bool:
        """As `RunResult.believable`."""
        return self.lag_p99_ns <= LAG_LIMIT_NS


class _About(msgspec.Struct):
    headway: str
    asked: dict[str, Any]
    model: str
    arrival: str
    started_at: datetime
    start_ns: int | None
    lag_p99_ns: float
    interrupted: bool


def check_raw(path: str | Path) -> None:
    """Find out, before a run, whether its records can be kept at `path`; raises ConfigError if not."""
    check_writable(Path(path), _WHAT)


def write_raw(path: str | Path, result: RunResult, summary_json: Mapping[str, object] | None = None) -> None:
    """Write a run whole or not at all, over what is there; `summary_json`: default the summary's. Raises ConfigError."""
    about = _About(
        headway=__version__,
        asked=_plain(result.options),
        model=result.model,
        arrival=result.arrival,
        started_at=result.started_at,
        start_ns=result.start_ns,
        lag_p99_ns=result.lag_p99_ns,
        interrupted=result.interrupted,
    )
    summary = as_json(result.summary) if summary_json is None else summary_json
    ladder = () if result.ladder is None else result.ladder.steps
    steps = [number for number, step in enumerate(ladder, 1) for _ in step.exchanges]
    warm_up = [not result.summary.warm_up.keeps(exchange) for exchange in result.exchanges]
    table = to_table(
        result.exchanges, warm_up, None if result.ladder is None else steps
    ).replace_schema_metadata(
        {
            _SCHEMA_KEY: SCHEMA_NAME.encode(),
            # The standard library's, as --json prints: a file's name may hold what is no Unicode.
            _RUN_KEY: json.dumps(msgspec.to_builtins(about)).encode(),
            _SUMMARY_KEY: json.dumps(summary).encode(),
        }
    )
    write_whole_by(
        Path(path),
        # With checksums a flipped bit is an error and no other latency.
        lambda file: pq.write_table(table, file, compression="zstd", write_page_checksum=True),
        _WHAT,
    )


def read_raw(path: str | Path) -> SavedRun:
    """Read what `write_raw` wrote; raises ConfigError for any other file, one that is damaged, or another schema's."""
    try:
        with Path(path).open("rb") as file:
            found = pq.ParquetFile(file, page_checksum_verification=True)
            metadata = found.schema_arrow.metadata or {}
            _check_schema(path, metadata, found.schema_arrow)
            table = found.read()
    except pa.ArrowException as error:
        raise ConfigError(f"{path} is not a whole Parquet file: {_first_line(error)}") from error
    except OSError as error:  # pyarrow's, too, which have no strerror
        raise ConfigError(f"{path} cannot be read: {error.strerror or _first_line(error)}") from error
    try:
        about = msgspec.convert(json.loads(metadata[_RUN_KEY]), type=_About)
        summary = msgspec.convert(json.loads(metadata[_SUMMARY_KEY]), type=dict[str, Any])
        table.validate(full=True)
        exchanges = to_exchanges(table)
    except (KeyError, TypeError, ValueError) as error:  # msgspec's and pyarrow's among them
        raise ConfigError(f"{path} is damaged: {_first_line(error)}") from error
    return SavedRun(
        **{field: getattr(about, field) for field in about.__struct_fields__},
        summary=summary,
        exchanges=exchanges,
        warm_up=tuple(table.column("warm_up").to_pylist()),
        steps=tuple(table.column("step").to_pylist()),
    )


def _check_schema(path: str | Path, metadata: Mapping[bytes, bytes], schema: pa.Schema) -> None:
    name = metadata.get(_SCHEMA_KEY)
    if name is None:
        raise ConfigError(f"{path} holds no run: it was not written by `headway bench --raw`.")
    if name != SCHEMA_NAME.encode():
        raise ConfigError(
            f"{path} has the schema {name.decode(errors='replace')}; this Headway reads {SCHEMA_NAME}."
        )
    if not schema.equals(SCHEMA):
        raise ConfigError(f"{path} is damaged: its columns are not those of {SCHEMA_NAME}.")


def _plain(value: object) -> Any:
    """Return JSON's types for a value of `RunOptions`, without what a dataclass does not show: the endpoint's key."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value) if field.repr}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return type(value).__name__


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
