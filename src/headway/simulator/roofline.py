"""Predicts a step by the roofline of a device: each kind of work takes as long as its operations or its bytes need.

Matrix products and attention follow each other in every layer, so their times add up; within each, computing and reading
overlap (Williams and others, "Roofline", CACM 52/4, 2009). What is published is never reached, so both peaks are lowered
by a factor. A single device: no tensor parallelism. Windows of layers are not known: attention sees the whole context.
"""

from dataclasses import dataclass

from headway.core.config import KvFormat
from headway.core.errors import ConfigError
from headway.core.plan import ModelShape
from headway.runner.roofline import matmul_ops
from headway.runner.step import RunnerInfo, Step
from headway.simulator.devices import Device
from headway.simulator.step_load import StepLoad, load_of

COMPUTE_EFFICIENCY = 0.6
"""Of the peak. An assumption: kernels for GPUs are commonly told at 0.5 to 0.75 of it in prefill, and OpenVINO's 178
tokens/s of a model of 1.4 B (docs/performance.md) are 500 of the about 800 int8 GOPS of that machine."""
READ_EFFICIENCY = 0.8
"""Of the published bandwidth. An assumption: plain reading seldom gets beyond 0.9 of it, and attention reads in pieces."""
MIN_EFFICIENCY = 0.001
"""Nothing that anyone would simulate is worse; and times have to fit 63 bits of nanoseconds."""
MEMORY_SHARE = 0.9
"""Of the memory for weights and KV cache; the rest is for activations and the runtime (vLLM's default as well)."""

_WEIGHT_BYTES = {"bf16": 2.0, "int8": 1.0625, "int4": 0.5625}
"""By parameter, scales of groups of 32 included."""
_KV_BYTES: dict[KvFormat, float] = {"bf16": 2.0, "int8": 1.0625}
_HOST_KV_BYTES = 64 * 2**30
"""For the KV cache of a machine whose memory is as large as is built in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineCost:
    """A `StepCost` of `shape` on `device`; `weights` are bf16, int8 or int4, which computes as int8 does."""

    device: Device
    shape: ModelShape
    weights: str = "bf16"
    kv: KvFormat = "bf16"
    compute_efficiency: float = COMPUTE_EFFICIENCY
    read_efficiency: float = READ_EFFICIENCY
    launch_s: float | None = None
    """None = the device's."""

    def __post_init__(self) -> None:
        """Raises ConfigError for factors that are none, and formats without a size."""
        if not all(MIN_EFFICIENCY <= share <= 1 for share in (self.compute_efficiency, self.read_efficiency)):
            raise ConfigError(f"An efficiency is at least {MIN_EFFICIENCY} and at most 1.")
        if self.weights not in _WEIGHT_BYTES:
            raise ConfigError(f"Weights on a device are {', '.join(_WEIGHT_BYTES)}, not {self.weights}.")

    def step_ns(self, step: Step) -> int:
        """See StepCost."""
        return round(self.seconds(load_of(step)) * 1e9)

    def seconds(self, load: StepLoad) -> float:
        """Return the predicted duration of a step that carries `load`."""
        ops_s, read_s = self._ops_a_second, self.device.read_bytes * self.read_efficiency
        products = matmul_ops(self.shape, num_tokens=load.rows, num_logit_rows=load.drawn)
        products_s = max(products / ops_s, self._weight_bytes(load) / read_s)
        # Scores and values are products of their own, in bf16 whatever the weights are.
        scores = 4 * self.shape.num_heads * self.shape.head_dim * self.shape.num_layers
        attention_s = max(
            scores * (load.context + load.pairs) / (self.device.bf16_ops * self.compute_efficiency),
            self.kv_token_bytes * (load.context + load.prefix + load.rows) / read_s,
        )
        launch_s = self.device.launch_s if self.launch_s is None else self.launch_s
        return products_s + attention_s + launch_s

    def described(self) -> str:
        """Return what is assumed, in a few words."""
        launch_s = self.device.launch_s if self.launch_s is None else self.launch_s
        return (
            f"weights {self.weights}, {self.compute_efficiency:g} of its operations, {self.read_efficiency:g} of its "
            f"bandwidth, {launch_s * 1e3:g} ms a step"
        )

    @property
    def kv_token_bytes(self) -> float:
        """Bytes of one token in the KV cache."""
        shape = self.shape
        return 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * _KV_BYTES[self.kv]

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights."""
        shape = self.shape
        tables = 1 if shape.tied_embeddings else 2
        return (self._layer_weights(shape.num_experts or 1) + tables * self._table) * self._weight_size

    def runner_info(self, *, max_context: int | None = None, block_size: int = 16) -> RunnerInfo:
        """Return what a runner on the device is; raises ConfigError where the weights leave no room for a KV cache."""
        memory = self.device.memory_bytes
        room = _HOST_KV_BYTES if memory is None else memory * MEMORY_SHARE - self.weight_bytes
        num_blocks = int(room // (self.kv_token_bytes * block_size))
        if num_blocks < 1:
            raise ConfigError(
                f"The weights take {self.weight_bytes / 1e9:,.1f} GB, which leaves no memory for the KV cache on this "
                "device; choose smaller weights."
            )
        return RunnerInfo(
            vocab_size=self.shape.vocab_size,
            max_context=min(self.shape.max_context, max_context or self.shape.max_context),
            num_blocks=num_blocks,
            block_size=block_size,
            system_fingerprint="simulated",
        )

    @property
    def _ops_a_second(self) -> float:
        peak = self.device.bf16_ops if self.weights == "bf16" else self.device.int8_ops
        return peak * self.compute_efficiency

    @property
    def _weight_size(self) -> float:
        return _WEIGHT_BYTES[self.weights]

    @property
    def _table(self) -> int:
        return self.shape.vocab_size * self.shape.hidden_size

    def _weight_bytes(self, load: StepLoad) -> float:
        """Return what is read of the weights: of experts those that at least one row chose, if each chose at random."""
        shape = self.shape
        num_read = 1.0
        if shape.num_experts:
            missed = (1 - shape.num_experts_per_token / shape.num_experts) ** load.rows
            num_read = shape.num_experts * (1 - missed)
        return (self._layer_weights(num_read) + (self._table if load.drawn else 0)) * self._weight_size

    def _layer_weights(self, num_experts: float) -> float:
        """Return the parameters of all layers with so many experts each."""
        shape = self.shape
        heads, kv_heads = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        attention = shape.hidden_size * (2 * heads + 2 * kv_heads)
        ffn = num_experts * 3 * shape.hidden_size * shape.ffn_size + shape.num_experts * shape.hidden_size
        return shape.num_layers * (attention + ffn)
