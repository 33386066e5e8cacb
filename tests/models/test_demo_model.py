"""The demo model, fetched on first use: its header is what we think it is."""

import pytest

from headway.core.plan import TensorType
from headway.models.architectures import open_plan
from headway.models.fetch import resolve_model
from headway.models.gguf import read_gguf
from headway.models.sources import MODELS, known_sha256


@pytest.mark.model
def test_the_demo_model_has_a_plan() -> None:
    path = resolve_model("smollm2")
    plan = open_plan(path, known_sha256(path))
    assert plan.file_sha256 == MODELS["smollm2"].sha256
    shape = plan.shape
    assert (shape.vocab_size, shape.max_context, shape.hidden_size, shape.num_layers) == (
        49152,
        8192,
        576,
        30,
    )
    assert (shape.num_heads, shape.num_kv_heads, shape.head_dim, shape.ffn_size) == (9, 3, 64, 1536)
    assert (shape.ropes[0].dim, shape.ropes[0].interleaved, shape.tied_embeddings) == (64, True, True)
    assert shape.ropes[0].frequencies[16] == pytest.approx(100_000.0**-0.5)
    types = {reference.role: reference.type for reference in plan.tensors}
    assert types["token_embedding"] is TensorType.Q8_0
    assert types["query"] is TensorType.Q4_1
    assert types["ffn_norm"] is TensorType.F32
    assert len(read_gguf(path).texts("tokenizer.ggml.tokens")) == shape.vocab_size
