"""Compare llama.cpp's logits of the tiny GGUF files with those stored in tests/data/architectures.

The files' writer (tests/support/checkpoint_gguf.py) and the reader that is tested with them could share a
misunderstanding of what GGUF means; llama.cpp, whose format it is, shares none. Cases that it computes otherwise say so
(`llama_cpp` in tests/support/checkpoint_cases.py). What is left are roundings: of activations to the weights' type, and
to 8 bits beside quantized weights.

In an environment of its own (made with these versions: the first has llama.cpp compiled in, the second its
declarations of the same week):

    python -m venv venv-llama-cpp
    venv-llama-cpp/bin/pip install cffi==2.1.1 numpy==2.4.6
    venv-llama-cpp/bin/pip install --no-deps xllamacpp==2026.10.11549 llama-cpp-py-sync==0.11548
    PYTHONPATH=src:tests venv-llama-cpp/bin/python scripts/check_gguf_checkpoints.py

Takes seconds.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from support.checkpoint_case import Case
from support.checkpoint_cases import CASES
from support.checkpoint_gguf import write_checkpoint_gguf
from support.checkpoint_weights import F32Array, make_tokens, make_weights

DATA = Path(__file__).parents[1] / "tests" / "data" / "architectures"
CONTEXT = 1024
NUM_BATCH = 1024
F32_TYPE = 0
LIMIT, LIMIT_QUANTIZED = 0.02, 0.06


def main() -> None:
    lib, ffi = load_library()
    failed: list[str] = []
    for case in CASES:
        if "gguf" not in case.sources or not case.llama_cpp:
            continue
        expected = np.load(DATA / f"{case.name}.npy")
        with tempfile.TemporaryDirectory() as folder:
            path = write_checkpoint_gguf(Path(folder) / "model.gguf", case, make_weights(case))
            logits = llama_cpp_logits(lib, ffi, path, case)
        error = float(np.linalg.norm(logits - expected) / np.linalg.norm(expected))
        print(f"{case.name:24}{error:8.3%}")
        if not error <= (LIMIT_QUANTIZED if case.types else LIMIT):
            failed.append(case.name)
    if failed:
        raise SystemExit(f"llama.cpp computes something else: {', '.join(failed)}")


def load_library() -> tuple[Any, Any]:
    """Return llama.cpp's functions and cffi's view of its types."""
    import xllamacpp  # type: ignore[import-not-found]
    from llama_cpp_py_sync._cffi_bindings import ffi  # type: ignore[import-not-found]

    return ffi.dlopen(str(Path(xllamacpp.__file__).with_name("xllamacpp.abi3.so"))), ffi


def llama_cpp_logits(lib: Any, ffi: Any, path: Path, case: Case) -> F32Array:
    """Return the logits at the case's positions, with keys and values in float32."""
    lib.llama_backend_init()
    options = lib.llama_model_default_params()
    options.n_gpu_layers = 0
    options.use_extra_bufts = False  # repacked weights round more
    model = lib.llama_model_load_from_file(str(path).encode(), options)
    settings = lib.llama_context_default_params()
    settings.n_ctx = case.max_context or CONTEXT
    settings.n_batch = settings.n_ubatch = NUM_BATCH
    settings.n_threads = settings.n_threads_batch = 1
    settings.flash_attn_type = 0
    settings.type_k = settings.type_v = F32_TYPE
    context = lib.llama_init_from_model(model, settings)
    if model == ffi.NULL or context == ffi.NULL:
        raise SystemExit(f"llama.cpp does not load {case.name}")
    decode(lib, context, make_tokens(case), case.positions)
    num_bytes = 4 * int(case.config["vocab_size"])
    rows = [
        np.frombuffer(ffi.buffer(lib.llama_get_logits_ith(context, position), num_bytes), np.float32).copy()
        for position in case.positions
    ]
    lib.llama_free(context)
    lib.llama_model_free(model)
    return np.stack(rows)


def decode(lib: Any, context: Any, tokens: Sequence[int], positions: Sequence[int]) -> None:
    """Run the whole sequence as one batch that keeps the logits at `positions`."""
    batch = lib.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for index, token in enumerate(tokens):
        batch.token[index] = token
        batch.pos[index] = index
        batch.n_seq_id[index] = 1
        batch.seq_id[index][0] = 0
        batch.logits[index] = index in positions
    code = lib.llama_decode(context, batch)
    lib.llama_batch_free(batch)
    if code:
        raise SystemExit(f"llama_decode failed with {code}")


if __name__ == "__main__":
    main()
