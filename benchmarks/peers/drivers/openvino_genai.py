"""Measures OpenVINO GenAI's continuous batching: the GGUF file read by its own reader, each command a few steps.

    python -m peers.drivers.openvino_genai MODEL.gguf THREADS '{"prefix_cache": false, "KV_CACHE_PRECISION": "u8", ...}'

Settings in capitals are properties of its CPU plugin; `prefix_cache` lets a decode begin from a prompt computed before
(prompts of a prefill are always new). Tokens are random, sampling greedy. A step takes as many tokens as a whole prompt has.
"""

import importlib
import json
import random
import sys
import time
from typing import Any

from peers.drivers.lines import claim_stdout, serve

MAX_BATCHED_TOKENS = 4096
CACHE_GB = 1
MANY_TOKENS = 10_000


class OpenVinoGenAi:
    """A pipeline with nothing running between two commands."""

    def __init__(self, path: str, threads: int, settings: dict[str, Any]) -> None:
        # By name, as this repository's type checker runs where the package is not.
        self._genai, self._openvino = map(importlib.import_module, ("openvino_genai", "openvino"))
        self._numpy = importlib.import_module("numpy")
        properties = {key: value for key, value in settings.items() if key.isupper()}
        scheduler = self._genai.SchedulerConfig()
        scheduler.max_num_batched_tokens = MAX_BATCHED_TOKENS
        scheduler.max_num_seqs = 64
        scheduler.cache_size = CACHE_GB
        scheduler.dynamic_split_fuse = True
        scheduler.enable_prefix_caching = settings["prefix_cache"]
        self._pipeline = self._genai.ContinuousBatchingPipeline(
            path, scheduler, "CPU", {"INFERENCE_NUM_THREADS": threads} | properties
        )
        self._vocab = len(self._pipeline.get_tokenizer().get_vocab())
        self._rng = random.Random(1)
        self._prompts: dict[tuple[int, int], list[Any]] = {}
        self._num_requests = 0

    def describe(self) -> dict[str, Any]:
        """Return versions."""
        return {"version": self._genai.__version__, "build": self._openvino.__version__}

    def prefill(self, tokens: int) -> float:
        """Compute one new prompt up to its first token; return seconds."""
        handle = self._submit(self._prompt(tokens), max_tokens=1)
        started = time.perf_counter()
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
        taken = time.perf_counter() - started
        if num_read(handle) != 1:
            raise RuntimeError("OpenVINO GenAI ended a request without its token")
        return taken

    def decode(self, batch: int, context: int, tokens: int) -> float:
        """Decode from prompts that are found in the prefix cache from the second time on; return seconds."""
        prompts = self._prompts.setdefault((batch, context), [self._prompt(context) for _ in range(batch)])
        # A handle that is let go of cancels its request.
        handles = [self._submit(prompt, max_tokens=MANY_TOKENS) for prompt in prompts]
        waiting = list(handles)
        while waiting:  # until each has its first token
            self._pipeline.step()
            waiting = [handle for handle in waiting if not handle.can_read()]
        for handle in handles:
            num_read(handle)
        started = time.perf_counter()
        for _ in range(tokens):
            self._pipeline.step()
        taken = time.perf_counter() - started
        read = [num_read(handle) for handle in handles]
        for handle in handles:
            handle.cancel()
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
        if read != [tokens] * batch:
            raise RuntimeError(f"OpenVINO GenAI decoded {read} tokens, not {tokens} each")
        return taken

    def _prompt(self, tokens: int) -> Any:
        ids = [self._rng.randrange(100, self._vocab) for _ in range(tokens)]
        return self._openvino.Tensor(self._numpy.array([ids], dtype=self._numpy.int64))

    def _submit(self, prompt: Any, *, max_tokens: int) -> Any:
        config = self._genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = max_tokens, True, False
        self._num_requests += 1
        return self._pipeline.add_request(self._num_requests, prompt, config)


def num_read(handle: Any) -> int:
    """Read what a request has so far; return how many tokens that is."""
    num = 0
    while handle.can_read():
        num += sum(len(output.generated_ids) for output in handle.read().values())
    return num


if __name__ == "__main__":
    answers = claim_stdout()
    serve(OpenVinoGenAi(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])), answers)
