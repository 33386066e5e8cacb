"""What is written in two places is the same in both."""

import re
import tomllib
from pathlib import Path

import headway

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def requirements(name: str) -> set[str]:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    return {line.strip() for line in lines if line.strip() and not line.startswith(("#", "-"))}


def test_public_names_are_pinned() -> None:
    assert sorted(headway.__all__) == ["__version__"]


def test_version_stands_the_same_everywhere() -> None:
    assert PROJECT["project"]["version"] == headway.__version__
    assert headway.__version__ in (ROOT / "CHANGELOG.md").read_text()


def test_dependencies_are_what_is_locked() -> None:
    assert set(PROJECT["project"]["dependencies"]) == requirements("runtime.in")


def test_the_extras_dependencies_are_what_is_locked() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    assert {name: set(extra) for name, extra in extras.items()} == {
        name: requirements(f"{name}.in") for name in ("editor", "gateway", "lab")
    }


def test_build_dependencies_are_what_is_locked() -> None:
    assert set(PROJECT["build-system"]["requires"]) == requirements("build.in")


def test_every_locked_version_carries_a_hash_and_no_index_is_named() -> None:
    for name in ("build", "runtime", "dev", "lab", "gateway", "editor"):
        text = (ROOT / "requirements" / f"{name}.txt").read_text()
        pins = re.findall(r"^[a-z0-9_.-]+==[^\\\n]+\\\n +--hash=sha256:[0-9a-f]{64}", text, re.MULTILINE)
        assert len(pins) == len(re.findall(r"^[a-z0-9_.-]+==", text, re.MULTILINE)) > 0
        assert "://" not in text


def test_no_file_is_too_large_for_the_repository() -> None:
    tracked = [path for folder in ("src", "native", "tests", "docs") for path in (ROOT / folder).rglob("*")]
    sizes = {
        path: path.stat().st_size for path in tracked if path.is_file() and "__pycache__" not in path.parts
    }
    assert sizes
    assert [path for path, size in sizes.items() if size > 1_000_000] == []
