"""A decoder of a few thousand weights, given to the native core straight from arrays, and steps for it."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle

from headway import _native
from headway.core.plan import ModelShape, TensorType
from headway.runner.native import shape_arguments
from headway.runner.native_runner import NativeRunner
from headway.runner.step import OutputKind, RunnerInfo, SamplingBatch, Step
from support.ggml_blocks import encode
from support.tiny_shapes import Tensors


def make_model(
    shape: ModelShape,
    tensors: Tensors,
    *,
    weights: str,
    isa: str,
    threads: int = 1,
    group_size: int = 32,
    activations: str = "f32",
    types: Sequence[TensorType] = (TensorType.F32,),
) -> _native.Model:
    """Load the tensors, matrices in one of `types` after another, and finish the model."""
    model = empty_model(
        shape, weights=weights, isa=isa, threads=threads, group_size=group_size, activations=activations
    )
    kinds = cycle(types)
    for (role, layer), values in tensors.items():
        for expert, part in enumerate(values if values.ndim == 3 else [values]):
            kind = TensorType.F32 if part.shape[0] == 1 else next(kinds)
            model.load(
                role=role,
                layer=layer,
                expert=expert if values.ndim == 3 else None,
                tensor_type=kind,
                rows=part.shape[0],
                columns=part.shape[1],
                data=memoryview(encode(part, kind)),
            )
    model.finish()
    return model


def empty_model(
    shape: ModelShape,
    *,
    weights: str = "int8",
    isa: str = "auto",
    threads: int = 1,
    group_size: int = 32,
    activations: str = "f32",
) -> _native.Model:
    """Return a model without tensors."""
    return _native.Model(
        **shape_arguments(shape, max_context=shape.max_context),
        weights=weights,
        group_size=group_size,
        activations=activations,
        isa=isa,
        threads=threads,
    )


def make_runner(
    model: _native.Model, shape: ModelShape, *, kv: str = "bf16", num_blocks: int = 64
) -> NativeRunner:
    """Return a runner with an empty cache of `num_blocks`."""
    cache = _native.KvCache(model, num_blocks=num_blocks, dtype=kv)
    info = RunnerInfo(
        vocab_size=shape.vocab_size,
        max_context=shape.max_context,
        num_blocks=num_blocks,
        block_size=16,
        system_fingerprint="tiny",
    )
    return NativeRunner(cache, info)


@dataclass(frozen=True, slots=True)
class Part:
    """What one sequence brings to a step: tokens after `context` cached ones, its blocks, rows read (of its tokens)."""

    tokens: Sequence[int]
    context: int
    blocks: Sequence[int]
    outputs: Sequence[int] = ()


def make_step(
    parts: Sequence[Part], *, kind: OutputKind = OutputKind.LOGITS, sampling: SamplingBatch | None = None
) -> Step:
    """Lay the parts out as flat arrays."""
    starts, table_starts, outputs = array("i", [0]), array("i", [0]), array("i")
    tokens, positions, table = array("i"), array("i"), array("i")
    for part in parts:
        outputs.extend(len(tokens) + row for row in part.outputs)
        tokens.extend(part.tokens)
        positions.extend(range(part.context, part.context + len(part.tokens)))
        table.extend(part.blocks)
        starts.append(len(tokens))
        table_starts.append(len(table))
    return Step(
        tokens=tokens,
        positions=positions,
        sequence_starts=starts,
        context_lens=array("i", [part.context for part in parts]),
        block_table=table,
        block_table_starts=table_starts,
        adapter_ids=array("i", [0] * len(parts)),
        output_rows=outputs,
        output_kinds=array("i", [kind] * len(outputs)),
        sampling=sampling,
    )


def greedy(num_rows: int, *, positions: Sequence[int] | None = None, num_logprobs: int = -1) -> SamplingBatch:
    """Greedy sampling of `num_rows` rows."""
    return SamplingBatch(
        temperature=array("f", [0.0] * num_rows),
        top_k=array("i", [0] * num_rows),
        top_p=array("f", [1.0] * num_rows),
        min_p=array("f", [0.0] * num_rows),
        repetition_penalty=array("f", [1.0] * num_rows),
        presence_penalty=array("f", [0.0] * num_rows),
        frequency_penalty=array("f", [0.0] * num_rows),
        seeds=array("Q", [7] * num_rows),
        choices=array("i", [0] * num_rows),
        positions=array("i", positions if positions is not None else [0] * num_rows),
        num_logprobs=array("i", [num_logprobs] * num_rows),
        history_starts=array("i", [0] * (num_rows + 1)),
        history=array("i"),
        history_prompt_lens=array("i", [0] * num_rows),
        bias_starts=array("i", [0] * (num_rows + 1)),
        bias_ids=array("i"),
        bias_values=array("f"),
        mask_rows=array("i", [-1] * num_rows),
        masks=array("I"),
    )


def drawing(num_rows: int, *, positions: Sequence[int], temperature: float = 1.0) -> SamplingBatch:
    """Sampling at a temperature, seed 7."""
    return replace(greedy(num_rows, positions=positions), temperature=array("f", [temperature] * num_rows))
