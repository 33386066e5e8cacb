"""`make setup` says what is missing in one sentence, and a run that was interrupted does not spoil the next."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Answers what scripts/check-tools asks like this interpreter; as `-m venv` it stops before pip is installed.
PYTHON = f"""#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then
    echo "$@" >> calls
    for folder; do :; done
    mkdir -p "$folder/bin" && touch "$folder/bin/python" && chmod +x "$folder/bin/python"
    exit 1
fi
exec '{sys.executable}' "$@"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the set-up needs before it compiles, in a folder whose name has a space."""
    folder = tmp_path / "a checkout"
    folder.mkdir()
    shutil.copy(ROOT / "Makefile", folder)
    for name in ("scripts", "requirements"):
        shutil.copytree(ROOT / name, folder / name)
    (folder / "native").mkdir()
    return folder


def make_setup(checkout: Path, python: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [shutil.which("make") or "make", "setup", f"PYTHON={python}"],
        cwd=checkout,
        env={**os.environ, "LC_ALL": "C", **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_environment_that_was_interrupted_is_made_anew(checkout: Path) -> None:
    python = checkout / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    for _ in range(2):
        assert make_setup(checkout, python).returncode != 0
    assert (checkout / "calls").read_text().splitlines() == ["-m venv --clear .venv"] * 2


def test_a_python_that_is_not_there_is_told_in_one_sentence(checkout: Path) -> None:
    result = make_setup(checkout, checkout / "absent")
    assert result.stderr.startswith("headway: needs Python 3.11 or newer; ")


def test_a_compiler_that_is_not_there_is_told_in_one_sentence(checkout: Path, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "env", "find", "uname", "cut"):
        (tools / name).symlink_to(str(shutil.which(name)))
    result = make_setup(checkout, Path(sys.executable), PATH=str(tools))
    assert result.stderr.startswith("headway: needs g++ 12 or newer ")
