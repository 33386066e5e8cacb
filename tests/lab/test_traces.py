"""Every trace format is read to the nanosecond, and nothing that cannot be read disappears."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.clock import NS_PER_MS, NS_PER_S
from headway.core.errors import ConfigError
from headway.lab.trace import (
    MAX_NAMED_BAD_ROWS,
    TraceFormat,
    TraceRow,
    at_speed,
    build_trace,
    dequantise,
)
from headway.lab.traces import parse_trace, read_trace

DATA = Path(__file__).parent / "data"


def offsets_ms(rows: tuple[TraceRow, ...]) -> list[float]:
    return [row.offset_ns / NS_PER_MS for row in rows]


def sizes(rows: tuple[TraceRow, ...]) -> list[tuple[int | None, int | None]]:
    return [(row.input_tokens, row.output_tokens) for row in rows]


def test_mooncake_keeps_its_times_and_its_blocks() -> None:
    trace = read_trace(DATA / "mooncake.jsonl")
    assert trace.format is TraceFormat.MOONCAKE
    assert offsets_ms(trace.rows) == [0, 0, 3052, 3052, 3052, 6051, 9050, 9050]
    assert sizes(trace.rows)[:2] == [(1100, 20), (700, 45)]
    assert [row.hash_ids for row in trace.rows][:3] == [(0, 1, 2), (0, 3), (0, 1, 4, 5)]
    assert trace.duration_ns == 9050 * NS_PER_MS


def test_mooncake_names_what_a_bad_row_lacks() -> None:
    trace = read_trace(DATA / "mooncake.jsonl")
    assert trace.num_bad == 2
    missing, blocks = trace.bad_rows
    assert missing.line == 5
    assert "output_length" in missing.reason
    assert (blocks.line, blocks.reason) == (8, "1200 tokens are 3 blocks of 512, and it names 2")


def test_azure_times_keep_all_seven_digits() -> None:
    trace = read_trace(DATA / "azure_2023.csv")
    assert trace.format is TraceFormat.AZURE
    assert [row.offset_ns for row in trace.rows] == [
        0,
        4_314_579_000,
        4_541_877_000,
        4_541_877_100,
        15_319_410_000,
    ]
    assert sizes(trace.rows)[-1] == (381, 84), "the last row has no newline behind it"
    assert [(bad.line, bad.reason) for bad in trace.bad_rows] == [
        (6, "its timestamp is '2023-11-16 18:16:60.0000000', no date and time"),
        (7, "its generatedtokens are '', no number of tokens"),
    ]


def test_azure_times_with_zones_are_one_time_line_sorted() -> None:
    trace = read_trace(DATA / "azure_2024.csv")
    assert [row.offset_ns for row in trace.rows] == [0, 9_930_000, 17_335_000, 1_250_000_000]
    assert [row.line for row in trace.rows] == [4, 2, 3, 5]
    assert trace.num_out_of_order == 1
    assert trace.num_bad == 0


def test_burstgpt_before_sessions_were_logged() -> None:
    trace = read_trace(DATA / "burstgpt_1.csv")
    assert trace.format is TraceFormat.BURSTGPT
    assert offsets_ms(trace.rows) == [0, 40_000, 40_000, 113_000]
    assert [row.failed for row in trace.rows] == [False, False, False, True]
    assert [row.label for row in trace.rows] == ["ChatGPT", "ChatGPT", "GPT-4", "ChatGPT"]
    assert [row.session for row in trace.rows] == [None] * 4
    assert [(bad.line, bad.reason) for bad in trace.bad_rows] == [
        (6, "it has 5 fields where the header has 6")
    ]


def test_burstgpt_with_sessions_need_not_start_at_zero() -> None:
    trace = read_trace(DATA / "burstgpt_2.csv")
    assert trace.format is TraceFormat.BURSTGPT
    assert offsets_ms(trace.rows) == [0, 2000, 2000, 9000]
    assert [row.session for row in trace.rows] == ["s1", "s1", None, None]
    assert [row.served_ns for row in trace.rows] == [3_500_000_000, 2_250_000_000, None, 750_000_000]
    assert sizes(trace.rows)[-1] == (64, 7)
    assert [(bad.line, bad.reason) for bad in trace.bad_rows] == [
        (6, "its request tokens are '-1', no number of tokens")
    ]


@pytest.mark.parametrize("name", ["mooncake.jsonl", "azure_2023.csv", "burstgpt_2.csv", "access_timed.log"])
def test_a_format_is_found_by_content_whatever_wraps_it(tmp_path: Path, name: str) -> None:
    plain = (DATA / name).read_bytes()
    wrapped = tmp_path / "trace.txt"
    wrapped.write_bytes(gzip.compress(b"\xef\xbb\xbf\r\n" + plain.replace(b"\n", b"\r\n\r\n")))
    expected, found = read_trace(DATA / name), read_trace(wrapped)
    assert found.format is expected.format
    assert [row.offset_ns for row in found.rows] == [row.offset_ns for row in expected.rows]
    assert found.num_bad == expected.num_bad


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("\n \n", "empty"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "no rows"),
        ("a,b,c\n1,2,3\n", "none of the known formats"),
        ('{"prompt": "hello"}\n', "none of the known formats"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nnow,1,2\nsoon,1,2\n", "None of the trace's 2 rows"),
    ],
)
def test_a_file_without_a_good_row_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as refusal:
        read_trace(path)
    assert "\n" not in refusal.value.message
    assert str(path) in refusal.value.message


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_trace(tmp_path / "absent")
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress((DATA / "mooncake.jsonl").read_bytes())[:-30])
    with pytest.raises(ConfigError, match="cannot be read"):
        read_trace(cut)


def test_bad_rows_are_all_counted_and_the_first_named() -> None:
    lines = ["Timestamp,Request tokens,Response tokens", *["x,1,1"] * 50, "7,1,1"]
    trace = parse_trace(lines)
    assert trace.num_bad == 50
    assert [bad.line for bad in trace.bad_rows] == list(range(2, 2 + MAX_NAMED_BAD_ROWS))
    assert [row.line for row in trace.rows] == [52]


@given(st.lists(st.text(max_size=80) | st.sampled_from(["5,1,1", '{"timestamp": 1}', "1e9,1,1", "5,1,٣"])))
def test_every_line_is_a_row_or_a_bad_row(lines: list[str]) -> None:
    trace = parse_trace(["Timestamp,Request tokens,Response tokens", "5,1,1", *lines])
    assert len(trace.rows) + trace.num_bad == 1 + sum(bool(line.strip("\ufeff\r\n\t ")) for line in lines)


def damaged(name: str) -> st.SearchStrategy[list[str]]:
    """The first row of a file behind its header, then the same row with a part replaced."""

    def damage(at: int, length: int, instead: str) -> list[str]:
        cut = at % (len(good) + 1)
        return [*lines[:header], good, good[:cut] + instead + good[cut + length :]]

    lines = (DATA / name).read_text().splitlines()
    header = 1 if name.endswith(".csv") else 0
    good = lines[header]
    instead = (
        st.text(max_size=4) | st.text("0123456789", min_size=1, max_size=30) | st.sampled_from('"[]{},.-')
    )
    return st.builds(damage, st.integers(0, 500), st.integers(0, 12), instead)


@given(
    st.sampled_from(["mooncake.jsonl", "azure_2024.csv", "burstgpt_2.csv", "access_timed.log"]).flatmap(
        damaged
    )
)
def test_a_damaged_row_is_a_row_or_a_bad_row(lines: list[str]) -> None:
    trace = parse_trace(lines)
    num_rows = len(lines) - (trace.format in (TraceFormat.AZURE, TraceFormat.BURSTGPT))
    assert len(trace.rows) + trace.num_bad == num_rows
    assert trace.rows[0].offset_ns == 0
    assert all(row.offset_ns >= 0 for row in trace.rows)


times_ns = st.lists(st.integers(0, 20).map(lambda cell: cell * 3 * NS_PER_S), min_size=1, max_size=40)


@given(times_ns, st.integers(0, 5))
def test_dequantising_stays_in_the_cell_and_keeps_the_order(times: list[int], seed: int) -> None:
    rows = [TraceRow(line, time, 1, 1) for line, time in enumerate(times, 1)]
    trace = build_trace(TraceFormat.MOONCAKE, rows)
    spread = dequantise(trace, seed)
    assert [row.line for row in spread.rows] == [row.line for row in trace.rows]
    assert all(
        0 <= after.offset_ns - before.offset_ns < 3 * NS_PER_S
        for before, after in zip(trace.rows, spread.rows, strict=True)
    )
    assert offsets_ms(spread.rows) == sorted(offsets_ms(spread.rows))
    assert dequantise(trace, seed) == spread


def test_dequantising_is_uniform_and_takes_a_seed() -> None:
    rows = [TraceRow(line, 0, 1, 1) for line in range(1, 2001)]
    trace = build_trace(TraceFormat.MOONCAKE, rows)
    spread = offsets_ms(dequantise(trace, 1).rows)
    thirds = [sum(low <= time < low + 1000 for time in spread) for low in (0, 1000, 2000)]
    assert sum(thirds) == 2000
    assert all(abs(third - 2000 / 3) < 4 * (2000 * 2 / 9) ** 0.5 for third in thirds)
    assert offsets_ms(dequantise(trace, 2).rows) != spread


def test_dequantising_never_passes_the_next_time_of_a_crooked_grid() -> None:
    trace = read_trace(DATA / "mooncake.jsonl")
    for seed in range(50):
        offsets = offsets_ms(dequantise(trace, seed, grid_ns=10 * NS_PER_S).rows)
        assert all(3052 <= offset < 6051 for offset in offsets[2:5])
        assert 6051 <= offsets[5] < 9050


def test_a_grid_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="length over 0"):
        dequantise(read_trace(DATA / "mooncake.jsonl"), 0, grid_ns=0)


def test_speed_shortens_all_gaps_alike() -> None:
    trace = read_trace(DATA / "mooncake.jsonl")
    assert offsets_ms(at_speed(trace, 2).rows) == [0, 0, 1526, 1526, 1526, 3025.5, 4525, 4525]
    assert at_speed(trace, 0.5).duration_ns == 18100 * NS_PER_MS


@pytest.mark.parametrize("speed", [0, -1, float("nan"), float("inf")])
def test_a_speed_that_is_none_is_refused(speed: float) -> None:
    with pytest.raises(ConfigError, match="speed"):
        at_speed(read_trace(DATA / "mooncake.jsonl"), speed)
