"""From a file to a runner: what is loaded, what "auto" becomes, what is refused."""

import dataclasses
import logging
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from headway import _native
from headway.core.config import EngineConfig
from headway.core.errors import ConfigError, ModelFileError
from headway.core.plan import LongContext, ModelPlan, TensorType
from headway.models.architectures import open_plan
from headway.models.gguf_file import BLOCK_LAYOUT
from headway.runner import native
from headway.runner.machine import auto_threads, group_available_bytes
from headway.runner.native import auto_num_blocks, load_runner, system_fingerprint
from support.tiny_gguf import write_tiny_gguf
from support.tiny_llama import Part, make_step
from support.tiny_reference import reference_logits, rounds_factors
from support.tiny_shapes import F32, tiny_rope

pytestmark = pytest.mark.native

CONFIG = EngineConfig(model="tiny", weights="bf16", threads=1, kv_bytes=1 << 20)
GGUF_NAMES = {
    "token_embd": "token_embedding",
    "attn_norm": "attention_norm",
    "attn_q": "query",
    "attn_k": "key",
    "attn_v": "value",
    "attn_output": "attention_output",
    "ffn_norm": "ffn_norm",
    "ffn_gate": "ffn_gate",
    "ffn_up": "ffn_up",
    "ffn_down": "ffn_down",
    "output_norm": "output_norm",
}


@pytest.fixture
def plan(tmp_path: Path) -> ModelPlan:
    write_tiny_gguf(tmp_path / "tiny.gguf")
    return open_plan(tmp_path / "tiny.gguf")


@pytest.mark.parametrize("tensor_type", list(TensorType), ids=lambda tensor_type: tensor_type.name)
def test_every_storage_type_gives_the_logits_of_its_values(tmp_path: Path, tensor_type: TensorType) -> None:
    hidden, heads = (256, 16) if BLOCK_LAYOUT[tensor_type][0] == 256 else (64, 4)
    tiny = write_tiny_gguf(
        tmp_path / "tiny.gguf", tensor_type=tensor_type, hidden=hidden, heads=heads, ffn=256
    )
    plan = open_plan(tiny.path)
    tensors: dict[tuple[str, int | None], F32] = {}
    for name, values in tiny.weights.items():
        *layer, stem, _ = name.removeprefix("blk.").split(".")
        tensors[GGUF_NAMES[stem], int(layer[0]) if layer else None] = np.atleast_2d(values)
    shape = plan.shape
    tokens = [(i * 37 + 11) % shape.vocab_size for i in range(40)]
    logits = load_runner(plan, CONFIG).forward(make_step([Part(tokens, 0, range(3), range(40))]))
    reference = reference_logits(
        shape, tensors, tokens, weights="bf16", kv="bf16", dots=rounds_factors("auto")
    )
    error = np.frombuffer(logits, dtype=np.float32).reshape(reference.shape) - reference
    assert np.sqrt(np.mean(error**2) / np.mean(reference**2)) < 0.001


def test_what_auto_became_is_logged(plan: ModelPlan, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="headway.runner.native"):
        runner = load_runner(plan, EngineConfig(model="tiny"))
    assert f"isa {_native.available_isas()[-1]} (auto)" in caplog.text
    assert f"{runner.info.num_blocks} blocks" in caplog.text
    assert runner.info.system_fingerprint in caplog.text
    assert runner.info.max_context == plan.shape.max_context
    assert runner.info.num_blocks >= plan.shape.max_context // 16


def test_memory_given_is_not_exceeded(plan: ModelPlan) -> None:
    runner = load_runner(plan, CONFIG)
    block_bytes = len(runner.read_block(0))
    assert runner.info.num_blocks == (1 << 20) // block_bytes


def test_the_fingerprint_names_what_decides_bits() -> None:
    def fingerprint(identity: str = "a", isa: str = "avx2", rope_dim: int = 32, **changes: object) -> str:
        config = EngineConfig(**({"model": "m", "weights": "int8"} | changes))  # type: ignore[arg-type]
        return system_fingerprint(identity, config, isa=isa, ropes=(tiny_rope(rope_dim),))

    base = fingerprint()
    different = {
        fingerprint(identity="b"),
        fingerprint(isa="avx512"),
        fingerprint(rope_dim=16),
        fingerprint(weights="bf16"),
        fingerprint(weights="bf16", activations="bf16"),
        fingerprint(weights="int4"),
        fingerprint(weights="nf4"),
        fingerprint(weights="auto"),
        fingerprint(group_size=64),
        fingerprint(group_size=128),
        fingerprint(kv="int8"),
    }
    assert len(different | {base}) == 12
    assert fingerprint(activations="bf16") == base
    assert fingerprint(threads=7, kv_bytes=1, model="other") == base
    assert fingerprint(weights="bf16", group_size=64) == fingerprint(weights="bf16")


def test_a_file_without_a_digest_is_told_by_its_content(tmp_path: Path) -> None:
    prints = []
    for seed in (1, 1, 2):
        tiny = write_tiny_gguf(tmp_path / "tiny.gguf", seed=seed)
        prints.append(load_runner(open_plan(tiny.path), CONFIG).info.system_fingerprint)
    assert prints[0] == prints[1] != prints[2]


def test_auto_blocks_hold_all_sequences_a_quarter_of_memory_or_the_least() -> None:
    def blocks(available_bytes: int, min_blocks: int = 100) -> int:
        return auto_num_blocks(
            max_num_seqs=8,
            blocks_per_context=100,
            min_blocks=min_blocks,
            block_bytes=1000,
            available_bytes=available_bytes,
        )

    assert blocks(10**9) == 800
    assert blocks(1_600_000) == 400
    assert blocks(200_000) == 100
    assert blocks(200_000, min_blocks=1) == 50
    assert blocks(1000, min_blocks=1) == 1


def test_an_automatic_context_is_what_fits_and_is_logged(
    plan: ModelPlan, caplog: pytest.LogCaptureFixture
) -> None:
    block_bytes = len(load_runner(plan, CONFIG).read_block(0))
    small = EngineConfig(model="tiny", threads=1, kv_bytes=20 * block_bytes)
    with caplog.at_level(logging.INFO, logger="headway.runner.native"):
        assert load_runner(plan, small).info.max_context == 320
    assert "context 320 (auto) of 512" in caplog.text
    assert "320 tokens instead of 512" in caplog.text


def test_more_threads_than_cpus_are_warned_of(
    plan: ModelPlan, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(native, "available_threads", lambda: 2)
    for threads in (None, 2):
        load_runner(plan, msgspec.structs.replace(CONFIG, threads=threads))
    assert caplog.text.count("CPUs") == 0
    load_runner(plan, msgspec.structs.replace(CONFIG, threads=3))
    assert caplog.text.count("3 threads are slower than as many as this process has CPUs: 2") == 1


def test_a_context_that_was_asked_for_is_kept(plan: ModelPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = EngineConfig(model="tiny", threads=1, max_context=512)
    monkeypatch.setattr(native, "available_memory_bytes", lambda: 400_000)
    info = load_runner(plan, asked).info
    assert (info.max_context, info.num_blocks) == (512, 32)


@pytest.mark.parametrize(
    ("kv_bytes", "words"), [(None, "0.1 MiB of memory are available"), (110_000, "0.1 MiB were given")]
)
def test_a_context_that_was_asked_for_and_does_not_fit_is_refused(
    plan: ModelPlan, monkeypatch: pytest.MonkeyPatch, kv_bytes: int | None, words: str
) -> None:
    monkeypatch.setattr(native, "_check_weights_fit", lambda *_: None)
    monkeypatch.setattr(native, "available_memory_bytes", lambda: 100_000)
    asked = EngineConfig(model="tiny", threads=1, max_context=512, kv_bytes=kv_bytes)
    with pytest.raises(ConfigError, match=rf"The context of 512 tokens .*{words}\. Use a shorter context or"):
        load_runner(plan, asked)


def test_a_long_context_has_to_be_asked_for_and_rotates_otherwise(
    plan: ModelPlan, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="headway.runner.native")
    long = LongContext(original_context=128, ropes=(tiny_rope(16, theta=50.0),))
    plan = dataclasses.replace(plan, shape=dataclasses.replace(plan.shape, long_context=long))
    step = make_step([Part([5, 6, 7, 8], 0, [0], [3])])

    def load(max_context: int | None) -> tuple[int, str, bytes]:
        runner = load_runner(plan, msgspec.structs.replace(CONFIG, max_context=max_context))
        return runner.info.max_context, runner.info.system_fingerprint, runner.forward(step)

    auto, short, exact, long_one = load(None), load(64), load(128), load(129)
    assert (auto[0], short[0], long_one[0]) == (128, 64, 129)
    assert caplog.text.count("the original 128 tokens; up to 512 may be asked for") == 1
    assert auto[1:] == short[1:] == exact[1:]
    assert long_one[1] != auto[1]
    assert long_one[2] != auto[2]


def test_loading_holds_the_packed_weights_and_a_slice_of_the_file(tmp_path: Path) -> None:
    """A child process packs a 256 MB file (of zeros, sparse on disk) and tells how much memory that took at most."""
    program = """
import re, sys
from pathlib import Path
from headway.core.config import EngineConfig
from headway.core.plan import ModelPlan, TensorRef, TensorType
from headway.runner.native import load_runner
from support.tiny_shapes import random_tensors, tiny_shape

def peak_kib():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text()).group(1))

path, vocab_size = Path(sys.argv[1]), 2**20
small = tiny_shape(vocab_size=64, hidden_size=64, num_layers=1)
tensors = []
for (role, layer), values in random_tensors(small).items():
    rows, columns = (vocab_size if role == "token_embedding" else values.shape[0]), values.shape[1]
    tensors.append(TensorRef(role=role, layer=layer, type=TensorType.F32, rows=rows, columns=columns, offset=0,
                             num_bytes=rows * columns * 4))
with path.open("wb") as file:
    file.truncate(vocab_size * 64 * 4)
shape = tiny_shape(vocab_size=vocab_size, hidden_size=64, num_layers=1)
plan = ModelPlan(path=path, files=(path,), file_sha256=None, shape=shape, tensors=tuple(tensors))
before = peak_kib()
runner = load_runner(plan, EngineConfig(model="m", weights="int8", threads=2, kv_bytes=1 << 20))
print(peak_kib() - before, path.name in Path("/proc/self/smaps").read_text())
"""
    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "large.bin")],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    taken_kib, still_mapped = ended.stdout.split()
    packed_kib = 2**20 * 64 * (34 / 32) / 1024  # int8 in groups of 32 with a bfloat16 scale
    assert packed_kib * 0.9 < int(taken_kib) < packed_kib + 40_000
    assert still_mapped == "False"


@pytest.mark.parametrize(
    ("quota", "threads"),
    [
        ("max 100000", 8),
        ("250000 100000", 2),
        ("50000 100000", 1),
        ("1600000 100000", 8),
        ("", 8),
        ("1 0", 8),
    ],
)
def test_auto_threads_follow_the_control_group(quota: str, threads: int) -> None:
    assert auto_threads(8, quota) == threads


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"threads": 0}, "threads"),
        ({"threads": 5000}, "threads"),
        ({"max_context": 513}, "The context"),
        ({"max_context": 0}, "The context"),
        ({"kv_bytes": 10}, "The KV cache"),
        ({"kv_bytes": 1 << 60}, "The KV cache"),
        ({"block_size": 8}, "must be a multiple of 16, here of at most 512"),
        ({"block_size": 10**18}, "must be a multiple of 16, here of at most 512"),
    ],
)
def test_settings_that_cannot_be_met_are_refused(
    plan: ModelPlan, changes: dict[str, int], words: str
) -> None:
    config = EngineConfig(**({"model": "tiny", "threads": 1, "kv_bytes": 1 << 20} | changes))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=words):
        load_runner(plan, config)


def test_blocks_of_any_multiple_of_16_give_the_same_logits(plan: ModelPlan) -> None:
    tokens = [(i * 37 + 11) % plan.shape.vocab_size for i in range(100)]
    logits = []
    for block_size in (16, 48, 512):  # the last one holds the whole context
        runner = load_runner(plan, EngineConfig(model="tiny", block_size=block_size, max_context=512))
        assert runner.info.block_size == block_size
        blocks = range(-(-len(tokens) // block_size))
        logits.append(runner.forward(make_step([Part(tokens, 0, blocks, range(100))])))
    assert logits[1] == logits[2] == logits[0]


def test_weights_that_do_not_fit_into_memory_are_refused_before_they_are_read(
    plan: ModelPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "available_memory_bytes", lambda: 1000)
    with pytest.raises(ConfigError, match=r"weights take .* as bf16"):
        load_runner(plan, CONFIG)


@pytest.mark.parametrize("error", [MemoryError("std::bad_alloc"), RuntimeError("Resource unavailable")])
def test_what_the_machine_lacks_is_no_bug(
    plan: ModelPlan, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(_native, "Model", fail)
    with pytest.raises(ConfigError, match=str(error)):
        load_runner(plan, CONFIG)


def test_a_control_group_s_page_cache_counts_as_available(tmp_path: Path) -> None:
    assert group_available_bytes(tmp_path, 7) == 7
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("900\n")
    assert group_available_bytes(tmp_path, 7) == 100
    (tmp_path / "memory.stat").write_text("anon 200\nfile 700\nactive_file 300\ninactive_file 400\n")
    assert group_available_bytes(tmp_path, 7) == 800
    (tmp_path / "memory.max").write_text("100\n")
    assert group_available_bytes(tmp_path, 7) == 0
    (tmp_path / "memory.max").write_text("max\n")
    assert group_available_bytes(tmp_path, 7) == 7


def test_a_missing_tensor_is_named(plan: ModelPlan) -> None:
    tensors = tuple(tensor for tensor in plan.tensors if (tensor.role, tensor.layer) != ("key", 1))
    with pytest.raises(ModelFileError, match="key of layer 1 is missing"):
        load_runner(dataclasses.replace(plan, tensors=tensors), CONFIG)


def test_a_file_that_ends_inside_a_tensor_is_refused(plan: ModelPlan) -> None:
    plan.path.write_bytes(plan.path.read_bytes()[:-64])
    with pytest.raises(ModelFileError, match="ends inside a tensor"):
        load_runner(plan, CONFIG)


def test_a_shape_that_no_kernel_fits_is_the_models_fault(plan: ModelPlan) -> None:
    shape = dataclasses.replace(plan.shape, head_dim=12, ropes=(tiny_rope(12),))
    with pytest.raises(ModelFileError, match="head_dim must be a multiple of 16"):
        load_runner(dataclasses.replace(plan, shape=shape), CONFIG)


def test_an_instruction_set_that_this_processor_lacks_is_refused(
    plan: ModelPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_native, "available_isas", lambda: ["portable"])
    config = EngineConfig(model="tiny", isa="avx512", kv_bytes=1 << 20)
    with pytest.raises(ConfigError, match='isa is "avx512"; this processor runs portable'):
        load_runner(plan, config)
