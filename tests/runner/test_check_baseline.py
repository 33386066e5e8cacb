"""The build holds no instruction that an old x86-64 lacks, but where the dispatcher guards it."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "check_baseline.py"

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the check reads x86-64 instructions"),
]


def check(build: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(build)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


def compile_object(source: str, target: Path, *flags: str) -> None:
    subprocess.run(
        ["g++", "-O2", *flags, "-x", "c++", "-c", "-", "-o", str(target)], input=source, text=True, check=True
    )


def test_the_build_of_this_python_holds_to_the_baseline() -> None:
    tag = f"cp3{sys.version_info.minor}"
    builds = sorted((ROOT / "build").glob(f"{tag}-{tag}-*"))
    if not builds:
        pytest.skip("needs the build tree that `make setup` leaves in build/")
    for build in builds:
        assert check(build) == (0, "")


def test_an_instruction_beyond_the_baseline_is_found_by_function(tmp_path: Path) -> None:
    compile_object("float twice(float x) { return x + x; }", tmp_path / "plain.cpp.o")
    assert check(tmp_path) == (0, "")
    compile_object("float thrice(float x) { return 3 * x; }", tmp_path / "wide.cpp.o", "-mavx2")
    status, output = check(tmp_path)
    assert status == 1
    assert "wide.cpp.o: thrice(float)" in output
    assert "plain.cpp.o" not in output


def test_a_unit_must_not_share_what_the_linker_may_pick_for_others(tmp_path: Path) -> None:
    local = "namespace { float half(float x) { return x / 2; } }\n"
    table = "namespace headway { using F = float (*)(float); F avx2_kernels() { return half; } }\n"
    compile_object(local + table, tmp_path / "avx2.cpp.o", "-mavx2")
    assert check(tmp_path) == (0, "")
    shared = "inline float half(float x) { return x / 2; }\n"
    compile_object(shared + table, tmp_path / "avx2.cpp.o", "-mavx2")
    status, output = check(tmp_path)
    assert status == 1
    assert "shares half(float)" in output


def test_a_directory_without_objects_is_no_success(tmp_path: Path) -> None:
    status, output = check(tmp_path)
    assert status == 1
    assert "build first" in output
