"""The examples of docs/client.md run as they stand, but for the address."""

import dataclasses
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from headway.client import Endpoint
from support.gateway_app import MODEL, service
from support.live_server import live_server
from support.real_server import LIMIT_S
from support.scripted_client import INFO, answering

GUIDE = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
ADDRESS = "http://127.0.0.1:8000"
ROOMY = msgspec.structs.replace(INFO, max_context=4096, num_blocks=512)
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
PRINTS = re.findall(r"^prints\n\n```text\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with live_server(service(answering("Hi there"), info=ROOMY).app) as (host, port):
        yield f"http://{host}:{port}"


def run(url: str, *command: str, stdin: str = "") -> str:
    done = subprocess.run(
        [part.replace(ADDRESS, url).replace('"smollm2"', f'"{MODEL}"') for part in command],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


def test_there_are_as_many_as_this_expects() -> None:
    assert (len(EXAMPLES), len(PRINTS)) == (5, 1)


def test_every_field_of_an_endpoint_is_told_and_no_other() -> None:
    rows = GUIDE.split("| `Endpoint` |", 1)[1].split("\n\n", 1)[0]
    told = [
        name
        for row in re.findall(r"^\| (`.*?) \|", rows, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    ]
    assert told == [field.name for field in dataclasses.fields(Endpoint)]


@pytest.mark.parametrize(
    ("number", "printed"),
    [
        (0, r"Hi there\nstop fake at 127\.0\.0\.1:\d+\n"),
        (1, r"Hi there\nUsage\(prompt_tokens=\d+, completion_tokens=8, cached_tokens=0\)\n"),
        (2, r"Hi there\n"),
        (3, re.escape(PRINTS[0])),
        (4, r"Hi there\n"),
    ],
)
def test_examples(url: str, number: int, printed: str) -> None:
    assert re.fullmatch(printed, run(url, sys.executable, "-c", EXAMPLES[number]))


def test_the_command(url: str) -> None:
    (example,) = re.findall(r"^```sh\n(echo.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    command = example.replace(
        "headway complete", f"{sys.executable} -m headway.cli.main complete --budget-ms 30000"
    )
    assert run(url, "bash", "-c", command) == "Hi there"
