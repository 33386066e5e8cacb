"""Puts an engine together from its settings: the model file's plan, the native runner, the step loop."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from headway.core.clock import Clock
from headway.core.config import EngineConfig
from headway.core.request import Request
from headway.engine.engine import Engine, engine_info
from headway.engine.grammars import GrammarThread, Matcher
from headway.models.architectures import open_model
from headway.models.grammar import GrammarVocabulary, matchers
from headway.models.sources import known_sha256
from headway.models.text_side import open_text
from headway.runner.native import load_runner


def build_engine(config: EngineConfig, clock: Clock) -> Engine:
    """Load `config.model_path` and return an idle engine.

    Raises ModelFileError for a file that cannot be served, ConfigError for settings this machine cannot meet.
    """
    path = Path(config.model_path)
    _, plan = open_model(path, known_sha256(path))
    runner = load_runner(plan, config)
    info = engine_info(config.model, runner)
    grammars = GrammarThread(grammar_compiler(path, info.vocab_size))
    return Engine(runner, config.scheduler, clock, info, grammars)


def grammar_compiler(path: Path, vocab_size: int) -> Callable[[Request], Sequence[Matcher]]:
    """Return what compiles the grammars of requests to the model at `path`; it reads the vocabulary when first called."""

    @lru_cache(maxsize=1)
    def vocabulary() -> GrammarVocabulary:
        return GrammarVocabulary(open_text(path).tokenizer, vocab_size)

    return lambda request: matchers(vocabulary(), request)
