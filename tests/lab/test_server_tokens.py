"""Lengths by the server's own tokenizer, whoever's form of `/tokenize` it has."""

import json

import pytest

from headway.lab.code_corpus import CodeCorpus, SourceFile
from headway.lab.endpoint import Endpoint
from headway.lab.server_tokens import measured_estimate
from headway.lab.token_estimate import TokenEstimate
from support.plain_server import as_json, serving

pytestmark = pytest.mark.anyio

FILES = (SourceFile("app.py", tuple(f"value_{line} = {line}" for line in range(6_000))),)
CHARS = 4


def tokens(text: str) -> list[int]:
    return [1] * (len(text) // CHARS)


def like_headway(_method: str, path: str, body: bytes) -> tuple[int, bytes]:
    asked = json.loads(body)
    if path != "/tokenize" or asked.keys() - {"model", "prompt", "add_special_tokens"}:
        return 400, b"{}"
    return as_json({"count": 0, "max_model_len": 1, "tokens": tokens(asked["prompt"]), "token_strs": None})


def like_llama(_method: str, path: str, body: bytes) -> tuple[int, bytes]:
    return (
        as_json({"tokens": tokens(json.loads(body).get("content", ""))})
        if path == "/tokenize"
        else (404, b"")
    )


def with_pieces(_method: str, _path: str, body: bytes) -> tuple[int, bytes]:
    return as_json({"tokens": [{"id": 1, "piece": "x"}] * len(tokens(json.loads(body).get("content", "")))})


@pytest.mark.parametrize("answer", [like_headway, like_llama, with_pieces])
async def test_the_server_counts_samples_of_the_code(answer: object) -> None:
    corpus = CodeCorpus(FILES, 1)
    unused = corpus.num_unused_lines
    async with serving(answer) as endpoint:  # type: ignore[arg-type]
        found = await measured_estimate(endpoint, "m", corpus)
    assert found.source == "server"
    assert found.chars_per_token == pytest.approx(CHARS, rel=0.001)
    assert corpus.num_unused_lines == unused


@pytest.mark.parametrize(
    "told", [(404, b""), (200, b"ok"), as_json([]), as_json({"tokens": []}), as_json({"tokens": [1]})]
)
async def test_without_a_count_a_number_is_assumed(told: tuple[int, bytes]) -> None:
    async with serving(lambda *_: told) as endpoint:
        assert await measured_estimate(endpoint, "m", CodeCorpus(FILES, 1)) == TokenEstimate(source="assumed")


async def test_a_server_that_stops_counting_is_not_believed_half() -> None:
    left = 2

    def answer(method: str, path: str, body: bytes) -> tuple[int, bytes]:
        nonlocal left
        left -= 1
        return like_headway(method, path, body) if left >= 0 else (503, b"")

    async with serving(answer) as endpoint:
        assert (await measured_estimate(endpoint, "m", CodeCorpus(FILES, 1))).source == "assumed"


async def test_nobody_is_no_error() -> None:
    nobody = Endpoint(host="127.0.0.1", port=1, path="/v1")
    assert await measured_estimate(nobody, "m", CodeCorpus(FILES, 1)) == TokenEstimate()
