"""What `GET /v1/models` answers, after OpenAI's API reference; `max_model_len` is vLLM's extension (context length)."""

from typing import Literal

import msgspec


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """One served model. `created`: Unix seconds since which it is served."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "headway"
    max_model_len: int | None = None


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """All served models."""

    object: Literal["list"] = "list"
    data: list[ModelCard]
