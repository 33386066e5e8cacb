"""The command line in this process: what it parses, what it refuses, and that its help explains every option."""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.cli import main as command_line
from headway.cli.main import build_parser, main
from headway.cli.options import (
    byte_size,
    engine_config,
    finite,
    not_negative,
    port_number,
    positive,
    web_origin,
)
from support.tiny_gguf import write_tiny_gguf


def subparsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in build_parser()._actions:  # argparse offers no public way to reach them
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def test_every_option_of_every_command_is_explained() -> None:
    commands = dict(subparsers())
    assert list(commands) == [
        "serve",
        "chat",
        "complete",
        "pull",
        "models",
        "inspect",
        "perf",
        "bench",
        "bench compare",
        "bench diff",
        "bench trace",
        "simulate",
        "simulate pareto",
        "calibrate",
        "token",
        "token create",
        "token list",
        "token revoke",
        "token show",
    ]
    unexplained = [
        (name, action.dest)
        for name, parser in commands.items()
        for action in parser._actions
        if not action.help
    ]
    assert unexplained == []


@pytest.mark.parametrize("arguments", [["perf", "m", "--max-draft-tokens", "0"], ["serve", "m", "--frob"]])
def test_an_option_of_another_command_is_answered_with_the_usage_of_this_one(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args(arguments)
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith(f"usage: headway {arguments[0]} ")
    assert f"headway {arguments[0]}: error: unrecognized arguments: {' '.join(arguments[2:])}\n" in err


def test_a_command_may_have_a_name_of_two_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def add_parser(subparsers: Any) -> None:
        subparsers.add_parser("bench race", help="run").add_argument("sides", nargs=2, metavar="SIDE")

    monkeypatch.setitem(sys.modules, "headway.cli.bench_race", SimpleNamespace(add_parser=add_parser))
    monkeypatch.setattr(command_line, "_SUBCOMMANDS", (*command_line._SUBCOMMANDS, "bench_race"))
    parser = build_parser()
    assert parser.parse_args(["bench", "race", "a", "b"]).sides == ["a", "b"]
    assert parser.parse_args(["bench", "http://race", "--model", "race"]).url == "http://race"
    assert parser.parse_args(["bench", "rac"]).url == "rac"  # no name is abbreviated
    with pytest.raises(SystemExit):
        parser.parse_args(["bench", "race", "a"])
    assert capsys.readouterr().err.startswith("usage: headway bench race ")
    with pytest.raises(SystemExit):
        parser.parse_args(["--help"])
    assert "  bench race" in capsys.readouterr().out


def test_help_fits_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name, parser in subparsers():
        assert max(map(len, parser.format_help().splitlines())) <= 80, name


def test_parsing_imports_neither_server_nor_tokenizer_nor_client() -> None:
    """`headway --help` has to be quick."""
    heavy = (
        "asyncio",
        "uvicorn",
        "uvloop",
        "starlette",
        "tokenizers",
        "jinja2",
        "httpx2",
        "prometheus_client",
    )
    code = f"import headway.cli.main as m, sys; m.build_parser(); print([n for n in {heavy} if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [("1", 1), ("512", 512), ("64K", 65536), ("1.5G", 3 << 29), ("2 GiB", 2 << 30), ("3mb", 3 << 20)],
)
def test_sizes(text: str, num_bytes: int) -> None:
    assert byte_size(text) == num_bytes


@pytest.mark.parametrize(
    "text", ["", "0", "0.1", "G", "-1", "1X", "1.G", "inf", "1e9", "٣", "9000000000G", "9" * 400]
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        byte_size(text)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "", "x", "²", "٣", "00", "1" + "0" * 18, "9" * 5000])
def test_what_is_no_positive_number(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        positive(text)


@pytest.mark.parametrize("text", ["-1", "1.5", "", "x", "²", "1" + "0" * 18])
def test_what_is_no_number_from_zero_on(text: str) -> None:
    assert (not_negative("0"), not_negative("00"), not_negative("7")) == (0, 0, 7)
    with pytest.raises(argparse.ArgumentTypeError):
        not_negative(text)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "", "warm"])
def test_what_is_no_finite_number(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        finite(text)


def test_ports() -> None:
    assert [port_number(text) for text in ("0", "8000", "65535")] == [0, 8000, 65535]
    for text in ("65536", "-1", "http", ""):
        with pytest.raises(argparse.ArgumentTypeError):
            port_number(text)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["dance"],
        ["pull"],
        ["models", "extra"],
        ["serve", "m", "--port", "70000"],
        ["serve", "m", "--threads", "0"],
        ["serve", "m", "--isa", "sse9"],
        ["serve", "m", "--group-size", "48"],
        ["serve", "m", "--max-body", "much"],
        ["serve", "m", "--drain-timeout", "0"],
        ["serve", "m", "--session-idle", "1e300"],
        ["serve", "m", "--ttft", "1e305,60,600"],
        ["serve", "m", "--itl-target", "1e305"],
        ["serve", "m", "--disk-kv", ""],
        ["serve", "m", "--unheard-of"],
        ["serve", "m", "--served-name", ""],
        ["serve", "m", "--served-name", "a\nb"],
        ["chat", "--temperature", "nan"],
        ["chat", "--max-tokens", "0"],
    ],
    ids=lambda arguments: " ".join(arguments) or "nothing",
)
def test_wrong_usage_is_told_by_argparse(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("usage: headway")


def test_options_become_the_engines_settings() -> None:
    args = build_parser().parse_args(
        [
            "serve",
            "m",
            "--weights",
            "bf16",
            "--kv",
            "int8",
            "--kv-memory",
            "1G",
            "--threads",
            "3",
            "--max-num-seqs",
            "5",
            "--max-draft-tokens",
            "0",
        ]
    )
    config = engine_config(args, "name", "path")
    assert (config.model, config.model_path) == ("name", "path")
    assert (config.weights, config.kv, config.kv_bytes, config.threads) == ("bf16", "int8", 1 << 30, 3)
    assert (config.scheduler.max_num_seqs, config.scheduler.max_draft_tokens) == (5, 0)


def test_models_lists_what_has_a_name_and_what_the_caches_hold(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "cache").mkdir()
    write_tiny_gguf(tmp_path / "cache" / "mine.gguf")
    (tmp_path / "cache" / "broken.gguf").touch()
    assert main(["models"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "ARCHITECTURE", "SIZE", "FORMATS", "CONTEXT", "SOURCE"]
    assert rows[0].split("  ")[0] == "smollm2"
    assert rows[0].endswith("alias, not fetched: `headway pull smollm2`")
    assert rows[1].endswith("cache, broken")
    assert rows[2].split() == [str(tmp_path / "cache/mine.gguf"), "llama", "0", "MB", "F32", "512", "cache"]
    assert rows[4].endswith("the file is empty.")
    assert main(["models", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [model["source"] for model in listed] == ["alias", "cache", "cache"]
    assert [model["architecture"] for model in listed] == [None, None, "llama"]


def test_an_unknown_model_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["pull", "nope"], ["serve", "nope", "--port", "0"], ["chat", "nope", "--prompt", "x"]):
        assert main(arguments) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("headway: Unknown model 'nope'")
        assert err.count("\n") == 1


@pytest.mark.parametrize("text", ["*", "null", "https://chat.example.org", "HTTP://localhost:3000"])
def test_origins_are_taken_as_browsers_send_them(text: str) -> None:
    assert web_origin(text) == text.lower()


@pytest.mark.parametrize(
    "text", ["", "example.org", "https://", "https://example.org/", "https://example.org/chat"]
)
def test_what_no_origin_can_equal_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not an origin"):
        web_origin(text)


def test_a_refusal_is_one_line_whatever_it_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "no\x1b[2J such\nfile\udcff.gguf"]) == 2
    message = capsys.readouterr().err
    assert message.endswith("\n")
    assert message[:-1].isprintable()
    assert "no\\x1b[2J such\\nfile\\udcff.gguf" in message
