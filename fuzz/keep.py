"""Keeps what fuzzing a target has collected, as few and short inputs as reach the same code: tests replay them.

    PYTHONPATH=src:tests:fuzz build/fuzz-venv/bin/python fuzz/keep.py TARGET...

Writes tests/data/corpora/TARGET.tar.xz from build/fuzz/TARGET/corpus.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
MAX_INPUT_BYTES = 16 * 1024
"""Few inputs are longer, and none of them shows more."""


def keep(target: str) -> None:
    collected = ROOT / "build" / "fuzz" / target
    with tempfile.TemporaryDirectory() as minimal:
        script = ROOT / "fuzz" / f"fuzz_{target}.py"
        folders = [str(folder) for folder in (minimal, collected / "corpus", collected / "seeds")]
        subprocess.run(
            [sys.executable, str(script), "-merge=1", *folders], check=True, stderr=subprocess.DEVNULL
        )
        path = ROOT / "tests" / "data" / "corpora" / f"{target}.tar.xz"
        path.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path, "w:xz") as archive:
            for file in sorted(Path(minimal).iterdir()):  # libFuzzer names a file by its contents
                data = file.read_bytes()
                if len(data) <= MAX_INPUT_BYTES:
                    member = tarfile.TarInfo(file.name)
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        keep(name)
