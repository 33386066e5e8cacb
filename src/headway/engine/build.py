"""Puts an engine together from its settings: the model file's plan, the native runner, the step loop."""

from pathlib import Path
from typing import TYPE_CHECKING

from headway.core.clock import Clock
from headway.core.config import EngineConfig
from headway.core.errors import ConfigError
from headway.core.messages import EngineInfo
from headway.engine.engine import Engine, engine_info
from headway.engine.grammars import GrammarThread
from headway.kv.job_thread import JobThread
from headway.kv.tiers import Tiers, open_tiers
from headway.models.architectures import open_plan
from headway.models.grammar_compiler import GrammarCompiler
from headway.models.sources import known_sha256
from headway.runner.machine import available_memory_bytes
from headway.runner.native import load_runner

if TYPE_CHECKING:
    from headway.models.tokenizer import Tokenizer


def build_engine(config: EngineConfig, clock: Clock) -> Engine:
    """Load `config.model_path` and return an idle engine.

    Raises ModelFileError for a file that cannot be served, ConfigError for settings this machine cannot meet.
    """
    path = Path(config.model_path)
    runner = load_runner(open_plan(path, known_sha256(path)), config)
    info = engine_info(config.model, runner)
    grammars = GrammarThread(GrammarCompiler(lambda: _open_tokenizer(path), info.vocab_size))
    return Engine(runner, config.scheduler, clock, info, grammars, _open_tiers(config, clock, info))


def _open_tiers(config: EngineConfig, clock: Clock, info: EngineInfo) -> Tiers:
    if config.host_kv_bytes > available_memory_bytes():
        raise ConfigError(
            f"The KV cache would put {config.host_kv_bytes} bytes more into memory; only "
            f"{available_memory_bytes()} are available."
        )
    return open_tiers(
        clock,
        JobThread(),
        host_bytes=config.host_kv_bytes,
        disk_path=config.disk_kv_path,
        disk_bytes=config.disk_kv_bytes,
        identity=f"{info.system_fingerprint} {info.block_size}",
    )


def _open_tokenizer(path: Path) -> "Tokenizer":
    """Read the tokenizer when the first grammar asks for it: its imports would be a tenth of the start-up."""
    from headway.models.text_side import open_text

    return open_text(path).tokenizer
