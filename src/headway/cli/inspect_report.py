"""What `headway inspect` prints: an inspection as text for people and as JSON.

Sizes are in MB of 1e6 bytes, as files are shown elsewhere. It reads no file.
"""

from collections.abc import Iterator

from headway.cli.inspection import Inspection
from headway.core.config import KvFormat, WeightFormat
from headway.core.plan import ModelShape
from headway.models.summary import printable
from headway.runner.native import AUTO_KV_SHARE

PROCESS_BYTES = 200_000_000
"""What both processes take beside weights and KV cache: the bound that benchmarks/startup.py holds them to."""


def as_json(inspection: Inspection) -> dict[str, object]:
    """Return the inspection as JSON's types."""
    summary, shape, text = inspection.summary, inspection.shape, inspection.text
    needs, context = inspection.needs, inspection.context
    memory = needs and {
        "available_bytes": inspection.available_bytes,
        "weights_bytes": dict(needs.weight_bytes),
        "kv_bytes_per_1000_tokens": {kind: 1000 * size for kind, size in needs.kv_token_bytes.items()},
        "kv_bytes_full_context": {kind: (context or 0) * size for kind, size in needs.kv_token_bytes.items()},
        "fits": {kind: _room(inspection, size) >= 0 for kind, size in needs.weight_bytes.items()},
        "fits_full_context": {
            weights: {kv: _tokens(inspection, weights, kv) >= (context or 0) for kv in needs.kv_token_bytes}
            for weights in needs.weight_bytes
        },
    }
    return {
        "path": str(inspection.path),
        "name": summary.name,
        "architecture": shape.architecture if shape else summary.architecture,
        "licence": summary.licence,
        "num_parameters": summary.num_parameters,
        "num_bytes": summary.num_bytes,
        "context": context,
        "rope_scaling": summary.rope_scaling,
        "window": _windows(shape),
        "shape": shape and {name: getattr(shape, name) for name in SHAPE_SIZES},
        "tensors": [
            {"type": use.type, "num_tensors": use.num_tensors, "num_bytes": use.num_bytes}
            for use in summary.types
        ],
        "tokenizer": {
            "kind": summary.tokenizer,
            "vocab_size": text.tokenizer.vocab_size if text else summary.vocab_size,
        },
        "chat_template": text and text.chat_template is not None,
        "fill_in_the_middle": text and text.fim is not None,
        "pooling": text and text.pooling,
        "memory": memory,
        "runs": not inspection.problems,
        "problems": list(inspection.problems),
    }


def as_text(inspection: Inspection) -> str:
    """Return the inspection for a terminal."""
    rows = [*_model_rows(inspection), *_memory_rows(inspection)]
    width = max(len(label) for label, _ in rows)
    lines = [f"{label:<{width}}  {text}".rstrip() for label, text in rows]
    verdict = (
        ["Headway cannot run it.", *inspection.problems] if inspection.problems else [_verdict(inspection)]
    )
    return "\n".join((*lines, "", *verdict))


SHAPE_SIZES = (
    "num_layers",
    "hidden_size",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "ffn_size",
    "vocab_size",
    "num_experts",
    "num_experts_per_token",
)


def _model_rows(inspection: Inspection) -> Iterator[tuple[str, str]]:
    summary, shape, text = inspection.summary, inspection.shape, inspection.text
    yield "model", summary.name or printable(inspection.path.name)
    yield "path", f"{inspection.path} ({_mb(summary.num_bytes)})"
    licence = f", licence {summary.licence}" if summary.licence else ""
    yield (
        "architecture",
        f"{_architecture(inspection)}, {_parameters(summary.num_parameters)}{licence}",
    )
    if shape is not None:
        experts = f" x {shape.num_experts} experts, {shape.num_experts_per_token} a token" * bool(
            shape.num_experts
        )
        heads = f"{shape.num_heads} heads and {shape.num_kv_heads} KV heads of {shape.head_dim}"
        yield (
            "shape",
            f"{shape.num_layers} layers of {shape.hidden_size:,}, {heads}, feed-forward {shape.ffn_size:,}{experts}",
        )
    scaling = f", rotary positions scaled ({summary.rope_scaling})" if summary.rope_scaling else ""
    yield "context", (f"{inspection.context:,} tokens" if inspection.context else "not told") + scaling
    if shape is not None and shape.long_context is not None:
        original = shape.long_context.original_context
        yield "", f"{original:,} unless more is asked for: beyond, all positions rotate differently"
    for window, num_layers in _windows(shape).items():
        yield "window", f"{num_layers} of {len(shape.layers) if shape else 0} layers see {window:,} tokens"
    vocab_size = text.tokenizer.vocab_size if text else summary.vocab_size
    yield "tokenizer", f"{summary.tokenizer or 'none'}, {vocab_size or 0:,} tokens"
    if text is not None:
        features = {
            "chat template": text.chat_template is not None,
            "fill-in-the-middle": text.fim is not None,
            f"embeddings ({text.pooling})" if text.pooling else "embeddings": text.pooling is not None,
        }
        yield "text", ", ".join(name if has else f"no {name}" for name, has in features.items())
    for index, use in enumerate(summary.types):
        yield "" if index else "tensors", f"{use.type:<7} {use.num_tensors:>6}  {_mb(use.num_bytes):>12}"


def _architecture(inspection: Inspection) -> str:
    shape = inspection.shape
    return shape.architecture if shape else inspection.summary.architecture or "unknown"


def _memory_rows(inspection: Inspection) -> Iterator[tuple[str, str]]:
    needs, context = inspection.needs, inspection.context
    if needs is None:
        return
    yield "weights", ", ".join(f"{kind} {_mb(size)}" for kind, size in needs.weight_bytes.items())
    for index, (kind, size) in enumerate(needs.kv_token_bytes.items()):
        full = f", {_mb(context * size)} for {context:,}" if context else ""
        yield "" if index else "KV cache", f"{kind} {_mb(1000 * size)} for 1,000 tokens{full}"
    yield "memory", f"{_mb(inspection.available_bytes)} available"


def _verdict(inspection: Inspection) -> str:
    """Say what fits with what `serve` takes unless told otherwise: weights as the file has them, the KV cache in bf16."""
    needs, context = inspection.needs, inspection.context
    assert needs is not None
    assert context is not None
    smaller = [kind for kind, size in needs.weight_bytes.items() if _room(inspection, size) >= 0]
    if "auto" not in smaller:
        hint = f"; it does with --weights {smaller[0]}" if smaller else ""
        return f"Headway can run it, but its weights exceed the memory available here{hint}."
    tokens = _tokens(inspection, "auto", "bf16")
    unasked = int(tokens * AUTO_KV_SHARE)
    if unasked >= context:
        return "Headway can run it, and it fits with a full context."
    fit = "a full context fits" if tokens >= context else f"{tokens:,} tokens of context fit"
    return f"Headway can run it; {fit} here if asked for (--max-context), {unasked:,} tokens otherwise."


def _room(inspection: Inspection, weight_bytes: int) -> int:
    return inspection.available_bytes - PROCESS_BYTES - weight_bytes


def _tokens(inspection: Inspection, weights: WeightFormat, kv: KvFormat) -> int:
    """Return how many tokens of KV cache fit beside the weights, in these formats."""
    assert inspection.needs is not None
    return (
        max(0, _room(inspection, inspection.needs.weight_bytes[weights]))
        // inspection.needs.kv_token_bytes[kv]
    )


def _windows(shape: ModelShape | None) -> dict[int, int]:
    """Return how many layers have which window; one as long as the context is none."""
    if shape is None:
        return {}
    windows = [layer.window for layer in shape.layers if layer.window and layer.window < shape.max_context]
    return {window: windows.count(window) for window in sorted(set(windows))}


def _parameters(number: int) -> str:
    return (
        f"{number / 1e9:,.2f} billion parameters"
        if number >= 10**9
        else f"{number / 1e6:,.1f} million parameters"
    )


def _mb(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.1f} MB" if num_bytes < 10**10 else f"{num_bytes / 1e9:,.1f} GB"
