"""Every architecture on the native core against `transformers` in float32 (scripts/make_architecture_references.py).

Each case of `support.checkpoint_cases` is a tiny random model, written as a Hugging Face folder and as a GGUF file. The
references lie beyond its sliding window, in the scaled part of its rotation and in three spans of 256 positions; how far
they would move without each feature is stored with them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from headway import _native
from headway.core.config import EngineConfig, InstructionSet, WeightFormat
from headway.models.architectures import open_plan
from headway.runner.native import load_runner
from headway.runner.native_runner import NativeRunner
from headway.runner.step import OutputKind
from support.checkpoint_case import Case
from support.checkpoint_cases import CASES
from support.checkpoint_folder import write_folder
from support.checkpoint_weights import F32Array, checksum, make_tokens, make_weights
from support.checkpoints import (
    by_case,
    by_source,
    case_named,
    reference,
    relative_error,
    write_checkpoint,
)
from support.plan_forward import PlanForward
from support.tiny_llama import Part, make_step

pytestmark = pytest.mark.native

KV_BYTES: Final = 4 << 20  # more than any case needs
CHUNK_TOKENS: Final = 113  # divides neither a window nor a span of 256 positions
MAX_RELATIVE_ERROR: Final = {"bf16": 0.02, "int8": 0.05}


def load(
    folder: Path, case: Case, source: str, *, weights: WeightFormat, isa: InstructionSet = "auto"
) -> NativeRunner:
    config = EngineConfig(
        model=case.name,
        weights=weights,
        isa=isa,
        threads=1,
        kv_bytes=KV_BYTES,
        max_context=case.max_context,
    )
    return load_runner(open_plan(write_checkpoint(folder, case, source)), config)


def logits_of(
    runner: NativeRunner,
    tokens: Sequence[int],
    positions: Sequence[int],
    *,
    chunk_tokens: int = CHUNK_TOKENS,
) -> F32Array:
    """Return the logits (num_positions, vocab_size) of one sequence, prefilled in chunks."""
    return np.concatenate(list(_chunks(runner, tokens, positions, chunk_tokens)))


def _chunks(
    runner: NativeRunner, tokens: Sequence[int], positions: Sequence[int], chunk_tokens: int
) -> Iterator[F32Array]:
    for start in range(0, len(tokens), chunk_tokens):
        chunk = tokens[start : start + chunk_tokens]
        end = start + len(chunk)
        rows = [position - start for position in positions if start <= position < end]
        blocks = range(-(-end // runner.info.block_size))
        logits = runner.forward(make_step([Part(chunk, start, blocks, rows)]))
        yield np.frombuffer(logits, np.float32).reshape(len(rows), runner.info.vocab_size)


def check_against_reference(case: Case, runner: NativeRunner, weights: WeightFormat, label: str) -> None:
    expected = reference(case)
    logits = logits_of(runner, expected.tokens, expected.positions)
    error = relative_error(logits, expected.logits)
    largest = float(np.abs(logits - expected.logits).max())
    second, first = np.sort(expected.logits, axis=1)[:, -2:].T
    clear = first - second > largest
    print(
        f"{case.name} {label} {weights}: {error:.3%}, largest {largest:.3f}, {clear.sum()} of {len(clear)} clear"
    )
    assert error <= MAX_RELATIVE_ERROR[weights]
    assert clear.any()
    assert (logits.argmax(axis=1) == expected.logits.argmax(axis=1))[clear].all()


@by_case
def test_references_prove_what_they_are_for(case: Case) -> None:
    stored = reference(case)
    assert stored.positions == case.positions
    assert stored.tokens == make_tokens(case)
    # Another C library may round a logarithm of the generator differently.
    assert checksum(make_weights(case)) == pytest.approx(stored.weights, rel=1e-6)
    assert stored.ablations.keys() == {ablation.name for ablation in case.ablations}
    for ablation in case.ablations:
        assert stored.ablations[ablation.name] >= ablation.least > MAX_RELATIVE_ERROR["bf16"]


@pytest.mark.parametrize("weights", ["bf16", "int8"])
@by_source
def test_logits_are_those_of_transformers(
    case: Case, source: str, weights: WeightFormat, tmp_path: Path
) -> None:
    check_against_reference(case, load(tmp_path, case, source, weights=weights), weights, source)


@pytest.mark.parametrize("weights", ["bf16", "int8"])
@pytest.mark.parametrize("isa", _native.available_isas())
@pytest.mark.parametrize(
    "name", ["qwen2", "qwen3moe", "phi3", "phi3-longrope-long", "gemma2", "gemma3"]
)  # every feature between them
def test_logits_on_every_instruction_set(
    name: str, isa: InstructionSet, weights: WeightFormat, tmp_path: Path
) -> None:
    case = case_named(name)
    runner = load(tmp_path, case, case.sources[0], weights=weights, isa=isa)
    check_against_reference(case, runner, weights, isa)


@pytest.mark.parametrize("weights", ["bf16", "int8"])
def test_as_many_experts_as_published_models_have(weights: WeightFormat, tmp_path: Path) -> None:
    """Of 128 experts some decide so narrowly that a rounding turns them: the median position has none of these."""
    case = case_named("qwen3moe")
    sizes = {"moe_intermediate_size": 24, "num_experts": 128, "num_experts_per_tok": 8}
    case = replace(case, config={**case.config, **sizes}, num_shards=1)
    plan = open_plan(write_folder(tmp_path / "model", case, make_weights(case)))
    tokens = make_tokens(case)[:CHUNK_TOKENS]
    expected = PlanForward(plan).logits(tokens)
    runner = load_runner(plan, EngineConfig(model="", weights=weights, threads=2, kv_bytes=KV_BYTES))
    off = np.linalg.norm(logits_of(runner, tokens, range(len(tokens))) - expected, axis=1)
    assert np.median(off / np.linalg.norm(expected, axis=1)) <= MAX_RELATIVE_ERROR[weights]


def test_longrope_rotates_by_its_short_factors_unless_more_context_is_asked_for(tmp_path: Path) -> None:
    short, long = case_named("phi3-longrope-short"), case_named("phi3-longrope-long")
    runners = []
    for case in (short, replace(short, max_context=None), long):
        folder = tmp_path / str(case.max_context)
        folder.mkdir()
        runners.append(load(folder, case, "folder", weights="bf16"))
    assert [runner.info.max_context for runner in runners] == [256, 256, 640]
    configured, unconfigured, extended = (
        logits_of(runner, reference(short).tokens, short.positions).tobytes() for runner in runners
    )
    assert configured == unconfigured != extended
    fingerprints = [runner.info.system_fingerprint for runner in runners]
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]


def test_hidden_states_of_a_folder_without_a_head(tmp_path: Path) -> None:
    """As embedding models come: the names lack "model.", and the class is that of the bare model."""
    case = case_named("qwen3")
    weights = {name.removeprefix("model."): values for name, values in make_weights(case).items()}
    path = write_folder(
        tmp_path / "model", case, weights, config={**case.config, "architectures": ["Qwen3Model"]}
    )
    runner = load_runner(
        open_plan(path), EngineConfig(model="", weights="bf16", threads=1, kv_bytes=KV_BYTES)
    )
    expected = reference(case)
    rows = [position for position in expected.positions if position < CHUNK_TOKENS]
    part = Part(expected.tokens[:CHUNK_TOKENS], 0, range(-(-CHUNK_TOKENS // 16)), rows)
    result = runner.execute(make_step([part], kind=OutputKind.HIDDEN))
    hidden = np.frombuffer(result.hidden, np.float32).reshape(len(rows), -1)
    logits = hidden @ weights["embed_tokens.weight"].T  # tied
    assert relative_error(logits, expected.logits[: len(rows)]) <= MAX_RELATIVE_ERROR["bf16"]


@by_case
def test_one_token_at_a_time_changes_no_bit(case: Case, tmp_path: Path) -> None:
    tokens = make_tokens(case)[:300]
    positions = [position for position in case.positions if position < len(tokens)]
    runner = load(tmp_path, case, case.sources[0], weights="int8")
    at_once = logits_of(runner, tokens, positions)
    one_by_one = logits_of(runner, tokens, positions, chunk_tokens=1)
    assert at_once.tobytes() == one_by_one.tobytes()


@pytest.mark.parametrize("weights", ["bf16", "int8"])
@pytest.mark.parametrize(
    "case", [case for case in CASES if len(case.sources) == 2], ids=lambda case: case.name
)
def test_folder_and_gguf_file_are_one_model(case: Case, weights: WeightFormat, tmp_path: Path) -> None:
    tokens = make_tokens(case)
    folder, gguf = (
        logits_of(load(tmp_path, case, source, weights=weights), tokens, case.positions)
        for source in case.sources
    )
    # Pairs that rotate lie elsewhere, so that sums round differently. Under int8 such a last bit turns now and then one
    # code of an activation, by 1/127 of its group's largest, which turns others.
    assert relative_error(gguf, folder) <= {"bf16": 2e-4, "int8": 0.02}[weights]
