"""What a raw file gives back is what was measured, and no other file is taken for one."""

import json
import re
from dataclasses import fields, replace
from io import BytesIO
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.errors import ConfigError
from headway.lab.deltas import DeltaKind, TokenUsage
from headway.lab.endpoint import parse_endpoint
from headway.lab.exchange import Answer, Exchange, Failure, FailureKind, Stamps, StreamEvent
from headway.lab.ladder import Measured
from headway.lab.ladder_run import LadderRun, LadderStep
from headway.lab.latency import ttft_ns
from headway.lab.measurement import RunResult
from headway.lab.raw_columns import SCHEMA, to_exchanges, to_table
from headway.lab.raw_file import SCHEMA_NAME, read_raw, write_raw
from headway.lab.run_options import RunOptions
from headway.lab.slo import Slo
from headway.lab.warm_up import WarmUp
from support.lab_runs import answered, run_of
from support.scripted_stream import play

DOCS = Path(__file__).parent.parent.parent / "docs" / "lab.md"

texts = st.text("a/:é\U0001f600\n\x00", max_size=8)  # few letters are quick to draw from
counts = st.none() | st.integers(0, 2**31)
gaps_ns = st.integers(0, 2**40)


@st.composite
def exchanges(draw: st.DrawFn) -> Exchange:
    """Any exchange that can be: stamps in order, with a failure or a text."""
    kinds = draw(st.lists(st.sampled_from(get_args(DeltaKind)), max_size=6))
    dispatched_ns = draw(st.integers(0, 2**61))
    connect_ns, tls_ns = draw(gaps_ns), draw(gaps_ns)
    written_ns: int | None = dispatched_ns + connect_ns + tls_ns + draw(gaps_ns)
    assert written_ns is not None
    first_byte_ns: int | None = written_ns + draw(gaps_ns)
    at_ns = first_byte_ns
    events = []
    for kind in kinds:
        assert at_ns is not None
        at_ns += draw(gaps_ns)
        events.append(
            StreamEvent(
                at_ns=at_ns, kind=kind, num_chars=draw(st.integers(0, 2**31)), num_tokens=draw(counts)
            )
        )
    assert at_ns is not None
    has_text = bool({"content", "reasoning", "tool_call"} & set(kinds))
    failure = Failure(
        kind=draw(st.sampled_from(get_args(FailureKind))),
        message=draw(texts),
        status=draw(st.none() | st.integers(100, 599)),
        retry_after_s=draw(st.none() | st.floats(0, 1e9)),
    )
    if not events and draw(st.booleans()):
        first_byte_ns = None
        written_ns = draw(st.sampled_from((None, written_ns)))
    counted = st.builds(TokenUsage, prompt_tokens=counts, completion_tokens=counts, cached_tokens=counts)
    return Exchange(
        stamps=Stamps(
            intended_ns=draw(st.integers(0, 2**61)),
            dispatched_ns=dispatched_ns,
            written_ns=written_ns,
            first_byte_ns=first_byte_ns,
            ended_ns=at_ns + draw(gaps_ns),
            connect_ns=connect_ns,
            tls_ns=tls_ns,
        ),
        answer=Answer(
            events=tuple(events),
            usage=draw(st.none() | counted),
            finish_reason=draw(st.none() | texts),
            failure=None if has_text and draw(st.booleans()) else failure,
        ),
        conversation=draw(st.integers(0, 2**40)),
        turn=draw(st.integers(1, 1000)),
        label=draw(texts),
    )


def result() -> RunResult:
    found = [
        answered(ttft_ms=10, num_tokens=3, cached_tokens=100),
        play(status=429, retry_after="7"),
        play((5, b"data: {\n\n")),
    ]
    endpoint = parse_endpoint("https://example.org/v1", "top-secret-key")
    return run_of(
        RunOptions(endpoint=endpoint, slo=Slo(ttft_ns=5), seed=3), found, lag_p99_ns=1.5, start_ns=12
    )


@settings(deadline=None)
@given(st.lists(exchanges(), max_size=4))
def test_every_record_comes_back_as_it_was(found: list[Exchange]) -> None:
    written = BytesIO()
    pq.write_table(to_table(found), written)
    assert list(to_exchanges(pq.read_table(written))) == found


def test_a_run_comes_back_without_its_texts_and_its_key(tmp_path: Path) -> None:
    run, path = result(), tmp_path / "run.parquet"
    assert run.exchanges[0].answer.content
    write_raw(path, run, {"ttft_ms": {"p50": "inf"}, "model": "\udcff"})
    assert [file.name for file in tmp_path.iterdir()] == ["run.parquet"]
    assert b"top-secret-key" not in path.read_bytes()
    found = read_raw(path)
    assert found.exchanges == tuple(
        replace(exchange, answer=replace(exchange.answer, content="")) for exchange in run.exchanges
    )
    assert (found.model, found.arrival, found.started_at, found.start_ns) == (
        run.model,
        run.arrival,
        run.started_at,
        run.start_ns,
    )
    assert (found.lag_p99_ns, found.believable, found.interrupted) == (1.5, True, False)
    assert found.summary == {"ttft_ms": {"p50": "inf"}, "model": "\udcff"}
    assert found.asked.keys() == {field.name for field in fields(RunOptions)}
    assert found.asked["seed"] == 3
    assert found.asked["slo"] == {"ttft_ns": 5, "itl_ns": None, "tpot_ns": None, "e2e_ns": None}
    assert found.asked["endpoint"] == {"host": "example.org", "port": 443, "path": "/v1", "tls": True}


def test_of_a_ladder_each_request_has_its_step(tmp_path: Path) -> None:
    run = result()
    steps = tuple(
        LadderStep(
            measured=Measured(rate=10, p95_ms=1, p95_low_ms=1, p95_high_ms=1),
            exchanges=part,
            num_cut=0,
            start_ns=0,
            lag_p99_ns=0,
            num_unsent_turns=0,
            client_late=False,
        )
        for part in (run.exchanges[:2], run.exchanges[2:])
    )
    path = tmp_path / "ladder.parquet"
    write_raw(path, replace(run, ladder=LadderRun(steps=steps, finding=None, limit_ms=200)))
    assert read_raw(path).steps == (1, 1, 2)
    write_raw(path, run)
    assert read_raw(path).steps == (None, None, None)


def test_what_was_left_out_as_warm_up_is_marked(tmp_path: Path) -> None:
    run, path = result(), tmp_path / "run.parquet"
    warm_up = WarmUp(num_excluded=1, steady=True, from_ns=1)
    assert [warm_up.keeps(exchange) for exchange in run.exchanges] == [False] * 3
    write_raw(path, replace(run, summary=replace(run.summary, warm_up=warm_up)))
    assert read_raw(path).warm_up == (True, True, True)
    write_raw(path, run)
    assert read_raw(path).warm_up == (False, False, False)


def test_a_query_finds_the_figures_beside_the_records(tmp_path: Path) -> None:
    run, path = result(), tmp_path / "run.parquet"
    write_raw(path, run)
    rows = pq.read_table(path).to_pylist()
    assert [row["ttft_ns"] for row in rows] == [ttft_ns(exchange) for exchange in run.exchanges]
    assert [row["failure_label"] for row in rows] == [None, "refused_429", "garbage"]
    assert rows[0]["output_tokens"] == 3


def test_what_stood_there_stays_until_all_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.parquet"
    path.write_bytes(b"old")

    def full(table: Any, file: Any, **_: Any) -> None:  # noqa: ARG001
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(ConfigError, match=r"cannot be written to .*: No space left on device\."):
        write_raw(path, result())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def whole(tmp_path: Path) -> Path:
    path = tmp_path / "run.parquet"
    write_raw(path, result())
    return path


def test_every_way_of_being_cut_off_is_told(tmp_path: Path) -> None:
    path = whole(tmp_path)
    data = path.read_bytes()
    for size in range(0, len(data), 97):
        path.write_bytes(data[:size])
        with pytest.raises(ConfigError):
            read_raw(path)


def test_a_flipped_bit_is_told_or_changes_nothing(tmp_path: Path) -> None:
    path = whole(tmp_path)
    data, run = path.read_bytes(), read_raw(path)
    told = 0
    for position in range(4, len(data), 61):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        try:
            found = read_raw(path)
        except ConfigError:
            told += 1
        else:
            assert found.exchanges == run.exchanges
    assert told > 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "holds no run"),
        ({"headway.schema": "headway-requests-99"}, "headway-requests-99; this Headway reads"),
        ({"headway.schema": SCHEMA_NAME}, "is damaged"),
        ({"headway.schema": SCHEMA_NAME, "headway.run": "{}", "headway.summary": "{}"}, "is damaged"),
    ],
)
def test_another_file_is_refused(change: dict[str, str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    pq.write_table(to_table(result().exchanges).replace_schema_metadata(change), path)
    with pytest.raises(ConfigError, match=message) as caught:
        read_raw(path)
    assert "\n" not in caught.value.message


def test_columns_of_another_kind_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"x": [1]}).replace_schema_metadata({"headway.schema": SCHEMA_NAME}), path)
    with pytest.raises(ConfigError, match="its columns are not"):
        read_raw(path)


@pytest.mark.parametrize(
    ("column", "value"), [("ended_ns", 0), ("failure", "bored"), ("event_kind", ["song"] * 5)]
)
def test_a_record_that_cannot_be_is_refused(column: str, value: object, tmp_path: Path) -> None:
    path = whole(tmp_path)
    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[0][column] = value
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    with pytest.raises(ConfigError, match="is damaged"):
        read_raw(path)


def test_no_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_raw(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_raw(tmp_path)


def test_every_column_is_documented_with_its_type_and_no_other() -> None:
    section = DOCS.read_text().split("### Raw data\n", 1)[1].split("\n### ", 1)[0]
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| ([^|]+) \|", section, re.MULTILINE)
    documented = {name: kind.strip() for names, kind in rows for name in re.findall(r"`(\w+)`", names)}
    assert documented == {field.name: _told(field) for field in SCHEMA}
    assert f"`{SCHEMA_NAME}`" in section


def _told(field: pa.Field) -> str:
    """A type as the documents write it: `int64`, `int64?` where it may be missing, `list of int64`."""
    if pa.types.is_list(field.type):
        return f"list of {_told(field.type.value_field)}"
    return str(field.type) + ("?" if field.nullable else "")


def test_the_metadata_is_json(tmp_path: Path) -> None:
    metadata = pq.read_schema(whole(tmp_path)).metadata
    assert json.loads(metadata[b"headway.run"])["model"] == "m"
    assert json.loads(metadata[b"headway.summary"])["offered"] == 3
