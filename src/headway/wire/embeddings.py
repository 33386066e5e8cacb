"""`/v1/embeddings`: a request's bytes to a checked `EmbeddingCall`, and the response. After OpenAI's API reference."""

import base64
from array import array
from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec

from headway.core.errors import InvalidRequest
from headway.wire.fields import convert, decode_object, select
from headway.wire.prompts import Prompt, parse_prompts
from headway.wire.schema_hints import PROMPTS

MAX_INPUTS: Final = 2048
"""OpenAI's limit."""

IGNORED: Final = frozenset({"user"})
_NEUTRAL: Final[dict[str, tuple[object, ...]]] = {}


class EmbeddingFields(msgspec.Struct, kw_only=True):
    """The supported fields, typed."""

    input: Annotated[msgspec.Raw, PROMPTS]
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None


class EmbeddingCall(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request. `dimensions`: what the caller expects, None = the model's."""

    model: str | None
    inputs: tuple[Prompt, ...]
    as_base64: bool
    dimensions: int | None


class Embedding(msgspec.Struct, frozen=True, kw_only=True):
    """One text's vector: numbers, or their little-endian float32 bytes in base64."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of all texts."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(msgspec.Struct, frozen=True, kw_only=True):
    """The response, vectors in the order of the texts."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


def parse_embedding(body: bytes) -> EmbeddingCall:
    """Parse and check a request's body; raises InvalidRequest."""
    chosen = select(
        decode_object(body),
        supported=EmbeddingFields.__struct_fields__,
        ignored=IGNORED,
        neutral=_NEUTRAL,
        long=("input",),
    )
    fields = convert(chosen, EmbeddingFields)
    inputs = parse_prompts(fields.input, "input", MAX_INPUTS)
    if len(inputs) > MAX_INPUTS:
        raise InvalidRequest(
            f"`input` may hold at most {MAX_INPUTS} texts; it holds {len(inputs)}.", param="input"
        )
    return EmbeddingCall(
        model=fields.model,
        inputs=inputs,
        as_base64=fields.encoding_format == "base64",
        dimensions=fields.dimensions,
    )


def embedding_list(
    vectors: Sequence[bytes], *, model: str, num_tokens: int, as_base64: bool
) -> EmbeddingList:
    """Build the response from float32 vectors in bytes."""
    return EmbeddingList(
        data=[
            Embedding(
                index=index,
                embedding=base64.b64encode(vector).decode() if as_base64 else array("f", vector).tolist(),
            )
            for index, vector in enumerate(vectors)
        ],
        model=model,
        usage=EmbeddingUsage(prompt_tokens=num_tokens, total_tokens=num_tokens),
    )
