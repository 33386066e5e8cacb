import asyncio
from pathlib import Path
from typing import cast

import pytest

from headway.cli.service import _start
from headway.core.config import EngineConfig
from headway.core.errors import EngineUnavailable, ModelFileError
from headway.engine.client import EngineClient
from headway.gateway.config import GatewayConfig
from support.checkpoint_folder import write_folder
from support.checkpoint_weights import make_weights
from support.checkpoints import case_named


class LoadingEngine:
    """Loads for ever, or fails at once."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self.is_loading = False

    async def start(self) -> None:
        if self._error is not None:
            raise self._error
        self.is_loading = True
        try:
            await asyncio.Event().wait()
        finally:
            self.is_loading = False


async def start(engine: LoadingEngine, folder: Path) -> None:
    config = EngineConfig(model="m", model_path=str(folder))
    async with asyncio.timeout(60):
        await _start(cast(EngineClient, engine), config, GatewayConfig())


@pytest.mark.anyio
async def test_a_model_without_text_is_refused_before_its_weights_are_there(tmp_path: Path) -> None:
    case = case_named("qwen2")
    folder = tmp_path / "model"
    write_folder(folder, case, make_weights(case))
    (folder / "tokenizer.json").unlink(missing_ok=True)
    engine = LoadingEngine()
    with pytest.raises(ModelFileError, match="there is no tokenizer"):
        await start(engine, folder)
    assert not engine.is_loading


@pytest.mark.anyio
async def test_what_is_wrong_with_the_whole_model_is_said_first(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"config\.json"):
        await start(LoadingEngine(), tmp_path)


@pytest.mark.anyio
async def test_an_engine_that_fails_is_the_error(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match="no such device"):
        await start(LoadingEngine(EngineUnavailable("no such device")), tmp_path)
