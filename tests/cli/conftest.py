"""Fixtures of the tests that run the real command on a tiny model."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.real_server import RealServer, real_server
from support.tiny_gguf import write_tiny_gguf


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model file named tiny.gguf; a third of a millisecond a token, so that 30,000 tokens take seconds."""
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_gguf(path, context=32768)
    return path


@pytest.fixture(scope="session")
def shared_server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A server for tests that leave it as it was."""
    with real_server(tiny_model, tmp_path_factory.mktemp("shared"), "--log-json") as server:
        yield server
