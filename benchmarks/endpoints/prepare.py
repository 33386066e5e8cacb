"""Makes what the servers need besides their environments: the model in the form each is best with, and an allocator."""

import subprocess
import sys
import tempfile
from pathlib import Path

from endpoints.hf_model import ensure_hf_model
from endpoints.servers import TCMALLOC, Files, llama_folder, preloaded
from peers.environments import SetupFailed
from peers.places import VLLM, Cache

_TCMALLOC_PACKAGE = "libtcmalloc-minimal4"


def model_files(cache: Cache) -> Files:
    """Return where the model's forms lie, made or not."""
    folder = cache.models / "endpoints"
    return Files(q8_0=folder / "smollm2-Q8_0.gguf", bf16_folder=folder / "smollm2-bf16")


def ensure_models(cache: Cache, gguf: Path) -> Files:
    """Make of the demo model's file what is missing; raises SetupFailed."""
    files = model_files(cache)
    files.q8_0.parent.mkdir(parents=True, exist_ok=True)
    if not files.q8_0.is_file():
        part = files.q8_0.with_suffix(".part")
        command = [str(llama_folder(cache) / "llama-quantize"), "--allow-requantize", str(gguf), str(part)]
        done = subprocess.run([*command, "Q8_0"], check=False, capture_output=True, text=True)
        if done.returncode:
            raise SetupFailed(f"llama-quantize failed: {done.stderr.strip().splitlines()[-1:]}")
        part.rename(files.q8_0)
    ensure_hf_model(gguf, files.bf16_folder)
    return files


def fetch_tcmalloc(cache: Cache) -> None:
    """Take tcmalloc out of Debian's package into vLLM's environment, which needs no rights; say so where that fails.

    With it and Intel's OpenMP vLLM decodes one sequence about twice as fast here.
    """
    environment = cache.environment(VLLM)
    if any(path.name == TCMALLOC for path in preloaded(environment)):
        return
    try:
        with tempfile.TemporaryDirectory(prefix="headway-") as folder:
            subprocess.run(
                ["apt-get", "download", _TCMALLOC_PACKAGE], cwd=folder, check=True, capture_output=True
            )
            (package,) = Path(folder).glob("*.deb")
            subprocess.run(["dpkg-deb", "-x", str(package), folder], check=True, capture_output=True)
            (library,) = (path for path in Path(folder).rglob(TCMALLOC))
            (environment / "lib" / TCMALLOC).write_bytes(library.read_bytes())
    except (OSError, subprocess.CalledProcessError, ValueError):
        print(f"there is no {TCMALLOC} ({_TCMALLOC_PACKAGE}): vLLM goes without", file=sys.stderr)
