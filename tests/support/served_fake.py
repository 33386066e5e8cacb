"""The real engine on the fake runner, in the form that engine clients start."""

from headway.core.clock import Clock
from headway.core.config import EngineConfig
from headway.core.messages import EngineInfo
from headway.engine.engine import Engine
from headway.runner.fake import FakeRunner

FACTORY = "support.served_fake:build"


def build(config: EngineConfig, clock: Clock) -> Engine:
    runner = FakeRunner(num_blocks=512, max_context=8192)
    info = EngineInfo(
        model=config.model,
        vocab_size=runner.info.vocab_size,
        max_context=runner.info.max_context,
        num_blocks=runner.info.num_blocks,
        block_size=runner.info.block_size,
        system_fingerprint=runner.info.system_fingerprint,
    )
    return Engine(runner, config.scheduler, clock, info)
