"""The plan of a `llama` model from a GGUF header: its sizes, its constants and the place of each tensor.

It reads no tensor data but a vector of rotation factors. It accepts only what the forward pass computes exactly; a key or
tensor that would change the output is refused by name. Keys and tensor names: the GGUF specification; their meaning: LLaMA
(arXiv 2302.13971), rotary positions (arXiv 2104.09864), grouped-query attention (arXiv 2305.13245).
"""

import math
import struct
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NoReturn

from headway.core.errors import ModelFileError
from headway.core.plan import LayerShape, ModelPlan, ModelShape, Role, Rope, TensorRef, TensorType
from headway.models.gguf_file import GgufFile, GgufTensor, MetadataValue

ARCHITECTURE: Final = "llama"

_MAX_INT32 = 2**31 - 1  # sizes and positions cross the native boundary as int32
_DEFAULT_ROPE_THETA = 10_000.0  # LLaMA 1 and 2, whose files often leave the key out

# Keys that `plan_llama` reads, or that describe without changing the output.
_UNDERSTOOD = frozenset(
    {
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.layer_norm_rms_epsilon",
        "attention.value_length",
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "rope.dimension_count",
        "rope.freq_base",
        "rope.scaling.finetuned",
        "rope.scaling.original_context_length",
        "tensor_data_layout",  # how the converter's input was laid out
        "vocab_size",
    }
)

# Keys of techniques that we do not compute, with the values that switch them off. llama.cpp scales positions by
# `rope.scaling.factor` even when no type is given, and takes a factor of 0 as 1.
_OFF_VALUES: Mapping[str, tuple[MetadataValue, ...]] = MappingProxyType(
    {
        "attention.causal": (True,),
        "attention.clamp_kqv": (0.0,),
        "attention.max_alibi_bias": (0.0,),
        "attention.scale": (0.0,),
        "embedding_scale": (0.0, 1.0),
        "expert_count": (0,),
        "expert_used_count": (0,),
        "logit_scale": (0.0, 1.0),
        "residual_scale": (0.0, 1.0),
        "rope.scale_linear": (0.0, 1.0),
        "rope.scaling.attn_factor": (1.0,),
        "rope.scaling.factor": (0.0, 1.0),
        "rope.scaling.type": ("none",),
        "use_parallel_residual": (False,),
    }
)

_ROPE_FACTORS = "rope_freqs.weight"  # Llama 3.1's scaling, as factors that divide the frequencies

_MATRIX_TYPES = frozenset(TensorType)
_VECTOR_TYPES = frozenset({TensorType.F32, TensorType.F16, TensorType.BF16})


def plan_llama(file: GgufFile, file_sha256: str | None = None) -> ModelPlan:
    """Return the plan of the llama model in `file`; `file_sha256` is passed through.

    Raises ModelFileError for a missing or contradictory key, a missing or misshapen tensor, and for anything that we
    could not compute exactly.
    """
    architecture = file.text("general.architecture")
    if architecture != ARCHITECTURE:
        _fail(file, f"the architecture {architecture!r} is not {ARCHITECTURE}")
    _refuse_unsupported_keys(file)
    shape = _read_shape(file)
    tensors = tuple(_place_tensors(file, shape))
    return ModelPlan(
        path=file.path, files=(file.path,), file_sha256=file_sha256, shape=shape, tensors=tensors
    )


def _refuse_unsupported_keys(file: GgufFile) -> None:
    for key, value in file.metadata.items():
        prefix, _, name = key.partition(".")
        if prefix != ARCHITECTURE or name in _UNDERSTOOD:
            continue
        if name not in _OFF_VALUES:
            _fail(file, f"the metadata key {key[:80]!r} is not supported, it may change the output")
        if value not in _OFF_VALUES[name]:
            off = " or ".join(str(allowed) for allowed in _OFF_VALUES[name])
            _fail(file, f"{key} is {str(value)[:40]!r}, which is not supported (only {off} is)")


def _read_shape(file: GgufFile) -> ModelShape:
    hidden_size = _size(file, "embedding_length")
    num_heads = _size(file, "attention.head_count")
    num_kv_heads = _size(file, "attention.head_count_kv", num_heads)
    if num_heads % num_kv_heads:
        _fail(file, f"{num_heads} heads cannot share {num_kv_heads} KV heads evenly")
    if "llama.attention.key_length" not in file.metadata and hidden_size % num_heads:
        _fail(file, f"{num_heads} heads do not divide the embedding length {hidden_size}")
    head_dim = _size(file, "attention.key_length", hidden_size // num_heads)
    value_dim = _size(file, "attention.value_length", head_dim)
    if value_dim != head_dim:
        _fail(file, f"keys of length {head_dim} with values of length {value_dim} are not supported")
    rope_dim = _size(file, "rope.dimension_count", head_dim)
    if rope_dim > head_dim or rope_dim % 2:
        _fail(file, f"rope.dimension_count {rope_dim} is odd or exceeds the head's {head_dim} dimensions")
    num_layers = _size(file, "block_count")
    if (
        f"blk.{num_layers - 1}.attn_norm.weight" not in file.tensors
    ):  # before anything of that many layers is made
        _fail(file, f"the tensor blk.{num_layers - 1}.attn_norm.weight is missing")
    return ModelShape(
        architecture=ARCHITECTURE,
        vocab_size=_vocab_size(file),
        max_context=_size(file, "context_length"),
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        ffn_size=_size(file, "feed_forward_length"),
        norm_epsilon=_positive(file, "attention.layer_norm_rms_epsilon"),
        tied_embeddings="output.weight" not in file.tensors,
        ropes=(_read_rope(file, rope_dim),),
        layers=(LayerShape(),) * num_layers,
    )


def _read_rope(file: GgufFile, dim: int) -> Rope:
    """Return the rotation, its frequencies divided by the file's factors where it has them (Llama 3.1)."""
    theta = _positive(file, "rope.freq_base", _DEFAULT_ROPE_THETA)
    factors: tuple[float, ...] = (1.0,) * (dim // 2)
    if _ROPE_FACTORS in file.tensors:
        place = _reference(file, _ROPE_FACTORS, (dim // 2,))
        if place.type is not TensorType.F32:
            _fail(file, f"the tensor {_ROPE_FACTORS} is of type {place.type.name} instead of F32")
        with file.path.open("rb") as source:
            source.seek(place.offset)
            data = source.read(place.num_bytes)
        if len(data) != place.num_bytes:
            _fail(file, f"it ends inside the tensor {_ROPE_FACTORS}")
        factors = struct.unpack(f"<{dim // 2}f", data)
    frequencies = []
    for index, factor in enumerate(factors):
        try:
            frequency = _float32(theta ** (-2.0 * index / dim) / factor)
        except (ZeroDivisionError, OverflowError):
            frequency = math.inf
        if not math.isfinite(frequency):
            _fail(file, f"the tensor {_ROPE_FACTORS} holds {factor}, which divides no frequency")
        frequencies.append(frequency)
    # Converters to GGUF permute llama's query and key rows so that pairs lie side by side.
    return Rope(dim=dim, interleaved=True, frequencies=tuple(frequencies))


def _float32(value: float) -> float:
    """Round to what a float32 can hold, as the models were trained with."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def _vocab_size(file: GgufFile) -> int:
    """Return the number of rows of the token embedding, which every other count of tokens must equal."""
    embedding = _tensor(file, "token_embd.weight")
    if len(embedding.dims) != 2:
        _fail(file, f"token_embd.weight has {len(embedding.dims)} dimensions instead of 2")
    vocab_size = embedding.dims[1]
    if not 1 <= vocab_size <= _MAX_INT32:
        _fail(file, f"a vocabulary of {vocab_size} tokens is out of range")
    if _size(file, "vocab_size", vocab_size) != vocab_size:
        _fail(file, f"llama.vocab_size is not token_embd.weight's number of rows, {vocab_size}")
    if "tokenizer.ggml.tokens" in file.metadata:
        num_tokens = len(file.texts("tokenizer.ggml.tokens"))
        if num_tokens != vocab_size:
            _fail(file, f"the tokenizer has {num_tokens} tokens, token_embd.weight {vocab_size} rows")
    return vocab_size


def _place_tensors(file: GgufFile, shape: ModelShape) -> Iterator[TensorRef]:
    """Yield every tensor, checked; then refuse the ones that nobody asked for."""
    known = {_ROPE_FACTORS}
    hidden, vocab, ffn = shape.hidden_size, shape.vocab_size, shape.ffn_size
    query_rows, key_rows = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim

    def place(name: str, role: Role, dims: tuple[int, ...], layer: int | None = None) -> TensorRef:
        known.add(name)
        tensor = _reference(file, name, dims)
        return TensorRef(
            role=role,
            layer=layer,
            type=tensor.type,
            rows=1 if len(dims) == 1 else dims[0],
            columns=dims[-1],
            offset=tensor.offset,
            num_bytes=tensor.num_bytes,
        )

    yield place("token_embd.weight", "token_embedding", (vocab, hidden))
    for layer in range(shape.num_layers):
        block = f"blk.{layer}."
        yield place(block + "attn_norm.weight", "attention_norm", (hidden,), layer)
        yield place(block + "attn_q.weight", "query", (query_rows, hidden), layer)
        yield place(block + "attn_k.weight", "key", (key_rows, hidden), layer)
        yield place(block + "attn_v.weight", "value", (key_rows, hidden), layer)
        yield place(block + "attn_output.weight", "attention_output", (hidden, query_rows), layer)
        yield place(block + "ffn_norm.weight", "ffn_norm", (hidden,), layer)
        yield place(block + "ffn_gate.weight", "ffn_gate", (ffn, hidden), layer)
        yield place(block + "ffn_up.weight", "ffn_up", (ffn, hidden), layer)
        yield place(block + "ffn_down.weight", "ffn_down", (hidden, ffn), layer)
    yield place("output_norm.weight", "output_norm", (hidden,))
    if not shape.tied_embeddings:
        yield place("output.weight", "output", (vocab, hidden))
    for name in file.tensors:
        if name not in known:
            _fail(file, f"the tensor {name!r} is not supported, it would change the output")


def _reference(file: GgufFile, name: str, shape: tuple[int, ...]) -> GgufTensor:
    """Return the tensor `name`, whose row-major shape must be `shape`."""
    tensor = _tensor(file, name)
    if tensor.dims[::-1] != shape:
        _fail(file, f"the tensor {name} has shape {tensor.dims[::-1]} instead of {shape}")
    allowed = _VECTOR_TYPES if len(shape) == 1 else _MATRIX_TYPES
    if tensor.type not in allowed:
        _fail(file, f"the tensor {name} is a vector of type {tensor.type.name}, which is not supported")
    return tensor


def _tensor(file: GgufFile, name: str) -> GgufTensor:
    tensor = file.tensors.get(name)
    if tensor is None:
        _fail(file, f"the tensor {name} is missing")
    return tensor


def _size(file: GgufFile, name: str, default: int | None = None) -> int:
    key = f"{ARCHITECTURE}.{name}"
    if isinstance(file.metadata.get(key), tuple):
        _fail(file, f"{key} differs from layer to layer, which is not supported")
    value = file.integer(key, default)
    if not 1 <= value <= _MAX_INT32:
        _fail(file, f"{key} is {value}, out of range")
    return value


def _positive(file: GgufFile, name: str, default: float | None = None) -> float:
    key = f"{ARCHITECTURE}.{name}"
    value = file.number(key, default)
    if not (math.isfinite(value) and value > 0):
        _fail(file, f"{key} is {value}, but must be positive")
    return value


def _fail(file: GgufFile, reason: str) -> NoReturn:
    raise ModelFileError(f"{file.path}: {reason}.")
