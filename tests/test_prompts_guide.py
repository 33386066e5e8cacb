"""The examples of docs/prompts.md run as they stand, but for the address, and print what it says they print."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from headway.models.fetch import resolve_model
from support.real_server import LIMIT_S, real_server

GUIDE = (Path(__file__).parent.parent / "docs" / "prompts.md").read_text()

pytestmark = [pytest.mark.native, pytest.mark.model]


def block(language: str) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    assert len(found) == 1
    return str(found[0])


def test_a_conversation_goes_on_from_the_cache(tmp_path: Path) -> None:
    profile = tmp_path / "profile.toml"
    profile.write_text(block("toml"))
    with real_server(
        resolve_model("smollm2"), tmp_path, "--kv-memory", "128M", "--profile", str(profile)
    ) as server:
        code = block("python").replace("http://127.0.0.1:8000", server.url)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    assert done.stderr == ""
    assert done.stdout == block("text")
