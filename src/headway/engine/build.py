"""Puts an engine together from its settings: the model file's plan, the native runner, the step loop."""

from pathlib import Path

from headway.core.clock import Clock
from headway.core.config import EngineConfig
from headway.core.messages import EngineInfo
from headway.engine.engine import Engine
from headway.models.architectures import open_model
from headway.models.sources import known_sha256
from headway.runner.native import load_runner


def build_engine(config: EngineConfig, clock: Clock) -> Engine:
    """Load `config.model_path` and return an idle engine.

    Raises ModelFileError for a file that cannot be served, ConfigError for settings this machine cannot meet.
    """
    path = Path(config.model_path)
    _, plan = open_model(path, known_sha256(path))
    runner = load_runner(plan, config)
    info = EngineInfo(
        model=config.model,
        vocab_size=runner.info.vocab_size,
        max_context=runner.info.max_context,
        num_blocks=runner.info.num_blocks,
        block_size=runner.info.block_size,
        system_fingerprint=runner.info.system_fingerprint,
    )
    return Engine(runner, config.scheduler, clock, info)
