"""The README's examples run as they stand, but for the address, and print what it says they print."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.models.fetch import resolve_model
from support.real_server import LIMIT_S, RealServer, real_server

README = (Path(__file__).parent.parent / "README.md").read_text()
ADDRESS = "http://127.0.0.1:8000"

pytestmark = [pytest.mark.native, pytest.mark.model]


def blocks(language: str) -> list[tuple[str, str]]:
    return re.findall(rf"^(`{{3,}}){language}\n(.*?)^\1$", README, re.MULTILINE | re.DOTALL)


def block(language: str, mark: str) -> str:
    found = [text for _, text in blocks(language) if mark in text]
    assert len(found) == 1, f"the README has {len(found)} {language} examples with {mark!r}"
    return found[0]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    folder = tmp_path_factory.mktemp("readme")
    with real_server(
        resolve_model("smollm2"), folder, "--served-name", "smollm2", "--kv-memory", "128M"
    ) as server:
        yield server


def run(server: RealServer, *command: str, limit_s: float = LIMIT_S) -> str:
    result = subprocess.run(
        [part.replace(ADDRESS, server.url) for part in command],
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=True,
    )
    return result.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl (on Debian: apt install curl)")
def test_curl(server: RealServer) -> None:
    answer = json.loads(run(server, "sh", "-c", block("sh", "The capital of France is")))
    assert answer["choices"][0]["text"] == " Paris"


def test_openai_package(server: RealServer) -> None:
    printed = run(server, sys.executable, "-c", block("python", "from openai import OpenAI"))
    assert printed.strip() == block("text", "def sum_two_numbers").strip()


def test_the_line_that_serve_prints_is_the_one_in_the_readme(server: RealServer) -> None:
    assert server.stdout.replace(server.url, ADDRESS).strip() == block("text", "Headway serves").strip()


def test_bench(server: RealServer, tmp_path: Path) -> None:
    line = next(line for line in block("sh", "headway bench").splitlines() if "headway bench" in line)
    command = line.replace(".venv/bin/headway", f"{sys.executable} -m headway.cli.main").replace(
        "run.html", f"{tmp_path}/run.html"
    )
    told = run(server, *command.split(), limit_s=4 * LIMIT_S)  # it offers its load for most of a minute
    assert "20 answered" in told
    assert "fifth" in told or re.search(r"^5 ", told, re.MULTILINE)
    assert (tmp_path / "run.html").stat().st_size > 1_000_000


def test_the_lab_from_python(server: RealServer) -> None:
    code = block("python", "headway.lab.run").replace(ADDRESS, server.url)
    assert re.fullmatch(r"[0-9.]+ ms\n", run(server, sys.executable, "-c", code))
