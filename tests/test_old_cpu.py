"""A CPU without AVX runs the same program: it picks the portable kernels and gets the bits that these give anywhere."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.tiny_gguf import write_tiny_gguf

QEMU = shutil.which("qemu-x86_64")
SCRIPT = Path(__file__).parent / "support" / "old_cpu_prompt.py"


def answer(path: Path, isa: str, *launcher: str) -> Any:
    command = [*launcher, sys.executable, str(SCRIPT), str(path), isa, "def hello(world):"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.native
@pytest.mark.skipif(QEMU is None, reason="needs qemu-x86_64 (on Debian: apt install qemu-user)")
def test_one_prompt_on_a_nehalem(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path, seed=7)
    expected = answer(path, "portable")
    assert len(expected["tokens"]) == 8
    assert answer(path, "auto", str(QEMU), "-cpu", "Nehalem") == expected
