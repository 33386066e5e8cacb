"""What is measured: a model's file, or `shape:NAME`, random weights of that shape (`headway.runner.shapes`)."""

from dataclasses import dataclass

from headway.core.config import EngineConfig, WeightFormat
from headway.core.errors import ConfigError
from headway.core.plan import ModelPlan
from headway.models.architectures import open_plan
from headway.models.fetch import resolve_model
from headway.models.sources import SHAPE_PREFIX, known_sha256
from headway.runner.native import PackModel, load_runner
from headway.runner.native_runner import NativeRunner
from headway.runner.packing import pack_tensors
from headway.runner.random_weights import pack_random, random_plan
from headway.runner.shapes import find_shape, is_shape


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model that can be loaded: what is in it, and how that gets into memory."""

    plan: ModelPlan
    pack: PackModel

    def load(self, config: EngineConfig) -> NativeRunner:
        """Return a runner with an empty KV cache; raises what `load_runner` does."""
        return load_runner(self.plan, config, self.pack)


def find_model(model: str, weights: WeightFormat) -> ModelSource:
    """Return the source of `model`; random weights are made in a type from which `weights` are packed.

    Raises what fetching and opening a model raise, and ConfigError for an unknown shape.
    """
    if is_random(model):
        shape = find_shape(model.removeprefix(SHAPE_PREFIX))
        return ModelSource(random_plan(model, shape, weights), pack_random)
    try:
        path = resolve_model(model)
    except ConfigError as error:
        if is_shape(model):
            raise ConfigError(
                f"Unknown model {model!r}: use {SHAPE_PREFIX}{model} for random weights of its shape."
            ) from error
        raise
    return ModelSource(open_plan(path, known_sha256(path)), pack_tensors)


def is_random(model: str) -> bool:
    """Return whether `model` names a shape, which has no file and no tokenizer."""
    return model.startswith(SHAPE_PREFIX)
