"""The lab as a Python program calls it."""

import subprocess
import sys

import pytest

import headway.lab
from headway.core.errors import ConfigError
from headway.lab.endpoint import parse_endpoint


def test_one_call_measures() -> None:
    command = [
        sys.executable,
        "-m",
        "headway.lab.null_server",
        "--ttft-ms",
        "3",
        "--itl-ms",
        "1",
        "--tokens",
        "4",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        port = int(server.stdout.readline())
        result = headway.lab.run(
            f"http://127.0.0.1:{port}", model="m", api_key="secret", requests=8, slo="ttft=10s"
        )
        server.stdin.close()
    assert result.summary.num_ok == 8
    assert result.summary.goodput is not None
    assert result.summary.goodput.fraction == 1
    assert "secret" not in repr(result.options)


def test_what_is_no_header_is_told_without_its_value() -> None:
    with pytest.raises(ConfigError, match="no name of a header") as caught:
        headway.lab.run("http://127.0.0.1:1", model="m", headers={"a b": "secret"})
    assert "secret" not in str(caught.value)


def test_several_loads_are_one_result() -> None:
    streams = [{"name": "a", "requests": 2}, {"name": "b", "arrival": "constant:100", "requests": 3}]
    result = headway.lab.run("http://127.0.0.1:1", model="m", streams=streams, sessions=True)
    assert {name: part.part.num_offered for name, part in result.summary.by_stream.items()} == {
        "a": 2,
        "b": 3,
    }
    assert [stream.options.session for stream in result.options.streams] == ["lab-a-0", "lab-b-1"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"requests": 0},
        {"duration_s": -1.0},
        {"duration_s": float("inf")},
        {"output_tokens": 0},
        {"slo": "ttft"},
        {"lines": 0, "workload": "medium"},
        {"trace_speed": 2.0},
        {"spread_times": -1.0},
        {"spread_times": True},
        {"bytes_per_token": (4.0, 0.0)},
    ],
)
def test_what_cannot_be_asked_is_told(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        headway.lab.run("http://127.0.0.1:1", model="m", **wrong)  # type: ignore[arg-type]


def test_the_package_has_what_it_names() -> None:
    assert headway.lab.__all__ == ["compare", "read_raw", "run", "write_raw", "write_report"]
    for name in headway.lab.__all__:
        assert callable(getattr(headway.lab, name))


def test_the_package_has_nothing_else() -> None:
    with pytest.raises(AttributeError):
        headway.lab.walk  # noqa: B018


def test_a_key_is_not_printed() -> None:
    assert "secret" not in repr(parse_endpoint("http://localhost", "secret"))
