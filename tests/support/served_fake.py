"""The real engine on the fake runner, in the form that engine clients start."""

from headway.core.clock import Clock
from headway.core.config import EngineConfig
from headway.engine.engine import Engine, engine_info
from headway.runner.fake import FakeRunner

FACTORY = "support.served_fake:build"


def build(config: EngineConfig, clock: Clock) -> Engine:
    runner = FakeRunner(num_blocks=512, max_context=8192)
    info = engine_info(config.model, runner)
    return Engine(runner, config.scheduler, clock, info)
