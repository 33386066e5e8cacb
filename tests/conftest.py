"""Fixtures every test may use."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio, the loop that the gateway runs on."""
    return "asyncio"
