"""Types of the native module (native/src/bindings.cpp). Arrays: any object with the buffer protocol and that item type."""

from collections.abc import Sequence
from typing import final

from typing_extensions import Buffer

NUMERICS_VERSION: int

def packed_bytes(*, weights: str, group_size: int, tensor_type: int, rows: int, columns: int) -> int: ...
def available_isas() -> list[str]: ...
def dequantize(*, tensor_type: int, columns: int, data: Buffer) -> bytes: ...

@final
class Model:
    def __init__(
        self,
        *,
        vocab_size: int,
        max_context: int,
        hidden_size: int,
        num_layers: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        ffn_size: int,
        norm_epsilon: float,
        tied_embeddings: bool,
        ropes: Sequence[tuple[int, bool, Sequence[float], float]],
        layers: Sequence[tuple[int, int | None]],
        activation: str,
        attention_scale: float | None,
        attention_softcap: float | None,
        logit_softcap: float | None,
        embedding_scale: float,
        qkv_bias: bool,
        qk_norm: bool,
        post_norms: bool,
        num_experts: int,
        num_experts_per_token: int,
        normalize_experts: bool,
        weights: str,
        group_size: int,
        activations: str = "f32",
        isa: str,
        threads: int,
    ) -> None: ...
    def load(
        self,
        *,
        role: str,
        layer: int | None,
        expert: int | None = None,
        tensor_type: int,
        first_row: int = 0,
        rows: int,
        columns: int,
        data: Buffer,
        add: float = 0.0,
    ) -> None: ...
    def finish(self) -> None: ...
    @property
    def isa(self) -> str: ...
    @property
    def threads(self) -> int: ...
    @property
    def weight_bytes(self) -> int: ...

@final
class KvCache:
    def __init__(
        self, model: Model, *, num_blocks: int, block_size: int = 16, dtype: str = "bf16"
    ) -> None: ...
    @property
    def model(self) -> Model: ...
    @property
    def num_blocks(self) -> int: ...
    @property
    def block_bytes(self) -> int: ...
    def read_block(self, block: int) -> bytes: ...
    def write_block(self, block: int, data: Buffer) -> None: ...
    def copy_block(self, source: int, target: int) -> None: ...
    def bind_block(self, block: int) -> None: ...

@final
class Runner:
    def __init__(self, cache: KvCache) -> None: ...
    def execute(
        self,
        *,
        tokens: Buffer,
        positions: Buffer,
        sequence_starts: Buffer,
        context_lens: Buffer,
        block_table: Buffer,
        block_table_starts: Buffer,
        adapter_ids: Buffer,
        output_rows: Buffer,
        output_kinds: Buffer,
        temperature: Buffer,
        top_k: Buffer,
        top_p: Buffer,
        min_p: Buffer,
        repetition_penalty: Buffer,
        presence_penalty: Buffer,
        frequency_penalty: Buffer,
        seeds: Buffer,
        choices: Buffer,
        sampling_positions: Buffer,
        num_logprobs: Buffer,
        history_starts: Buffer,
        history: Buffer,
        history_prompt_lens: Buffer,
        bias_starts: Buffer,
        bias_ids: Buffer,
        bias_values: Buffer,
        mask_rows: Buffer,
        masks: Buffer,
    ) -> tuple[list[int], list[tuple[float, tuple[tuple[int, float], ...]] | None], bytes]: ...
    def forward(
        self,
        *,
        tokens: Buffer,
        positions: Buffer,
        sequence_starts: Buffer,
        context_lens: Buffer,
        block_table: Buffer,
        block_table_starts: Buffer,
        adapter_ids: Buffer,
        output_rows: Buffer,
        output_kinds: Buffer,
    ) -> bytes: ...
    def time_phases(self, on: bool) -> None: ...
    def phases(self) -> tuple[int, int, dict[str, int]]: ...

@final
class MachineLimits:
    def __init__(self, *, isa: str, threads: int, num_bytes: int) -> None: ...
    @property
    def isa(self) -> str: ...
    def int8_ops_per_s(self, duration_s: float) -> float: ...
    def float_ops_per_s(self, duration_s: float) -> float: ...
    def read_bytes_per_s(self) -> float: ...
