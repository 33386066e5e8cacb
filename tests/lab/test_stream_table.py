"""Streams as a user writes them: what they ask, in whose name, and what is refused."""

from pathlib import Path

import pytest

from headway.core.errors import ConfigError
from headway.lab.endpoint import Endpoint
from headway.lab.request_headers import Headers
from headway.lab.run_options import RunOptions
from headway.lab.slo import parse_slo
from headway.lab.stream_table import SEEDS_PER_RUN, read_streams, with_streams


def base(headers: Headers = (), **asked: object) -> RunOptions:
    endpoint = Endpoint(host="h", port=1, path="/v1", headers=headers)
    return RunOptions(endpoint=endpoint, **asked)  # type: ignore[arg-type]


def test_a_stream_asks_for_its_own_and_else_for_what_the_run_does() -> None:
    options = with_streams(
        base(
            headers=(("x-key", "k"),), arrival="poisson:2", output_tokens=9, slo=parse_slo("ttft=1s"), seed=3
        ),
        [
            {"name": "chat"},
            {
                "name": "scan",
                "workload": "medium",
                "arrival": "closed:2",
                "requests": 5,
                "duration_s": 1.5,
                "output_tokens": 4,
                "lines": 7,
                "seed": 11,
                "class": "low",
                "tenant": "t1",
                "ttft_ms": 480,
                "itl_ms": 50,
                "skip": 6,
                "sessions": True,
                "headers": {"X-Own": "1"},
            },
        ],
    )
    assert (options.workload, options.arrival) == ("2 streams", "together")
    chat, scan = (stream.options for stream in options.streams)
    assert [stream.name for stream in options.streams] == ["chat", "scan"]
    assert (chat.workload, chat.arrival, chat.output_tokens, chat.session) == ("light", "poisson:2", 9, None)
    assert chat.seed == 3 * SEEDS_PER_RUN
    assert chat.endpoint.headers == (("x-key", "k"),)
    assert chat.slo == scan.slo == options.slo
    assert (scan.workload, scan.arrival, scan.num_requests, scan.duration_ns) == (
        "medium",
        "closed:2",
        5,
        1_500_000_000,
    )
    assert (scan.output_tokens, scan.lines, scan.seed, scan.num_skipped) == (4, 7, 11, 6)
    assert scan.session == "lab-scan-11"
    assert scan.endpoint.headers == (
        ("x-key", "k"),
        ("x-headway-class", "low"),
        ("x-headway-tenant", "t1"),
        ("x-headway-ttft-ms", "480"),
        ("x-headway-itl-ms", "50"),
        ("x-own", "1"),
    )


def test_streams_send_nothing_alike_by_accident() -> None:
    runs = [with_streams(base(seed=seed), [{"name": "a"}, {"name": "b"}]) for seed in (0, 1)]
    seeds = [stream.options.seed for run in runs for stream in run.streams]
    assert len(set(seeds)) == 4


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ([], "no stream"),
        ([{"workload": "light"}], "name"),
        ([{"name": "a"}, {"name": "a"}], "'a'"),
        ([{"name": "a b"}], "Stream 1"),
        ([{"name": "a", "rate": 3}], "rate"),
        ([{"name": "a", "class": "urgent"}], "urgent"),
        ([{"name": "a", "requests": 0}], "requests"),
        ([{"name": "a", "arrival": "ladder"}], "several loads"),
        ([{"name": "a", "arrival": "closed:1,2"}], "several loads"),
        ([{"name": "a", "arrival": "often"}], "often"),
        ([{"name": "a", "tenant": "t\n1"}], "x-headway-tenant"),
        ([{"name": "a", "headers": {"Host": "x"}}], "host"),
        ([{"name": "a", "workload": "trace:f", "skip": 1}], "skip"),
        ([{"name": "a", "duration_s": float("inf")}], "duration_s"),
        ([{"name": "a", "sessions": True, "headers": {"X-Headway-Session": "mine"}}], "not by both"),
    ],
)
def test_what_is_no_stream_is_told(tables: list[dict[str, object]], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_streams(base(), tables)
    assert told in caught.value.message


def test_processes_are_of_one_load() -> None:
    with pytest.raises(ConfigError):
        with_streams(base(num_processes=2), [{"name": "a"}])


def test_a_file_holds_a_table_for_each(tmp_path: Path) -> None:
    path = tmp_path / "streams.toml"
    path.write_text('[[stream]]\nname = "a"\n[[stream]]\nname = "b"\nclass = "low"\n')
    assert read_streams(path) == [{"name": "a"}, {"name": "b", "class": "low"}]


@pytest.mark.parametrize("text", ["", "name =", 'name = "a"', "stream = 1", "[[stream]]\n[other]", "\x00"])
def test_a_file_of_anything_else_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "streams.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_streams(path)
    assert str(path) in caught.value.message


def test_a_file_that_is_not_there_is_one_line() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_streams(Path("/nonexistent/s.toml"))
