"""Several tokens a step, from the engine to the client: what a client reads is the same with and without speculation."""

from typing import Any

import msgspec
import pytest

from headway.core.clock import Clock
from headway.core.config import EngineConfig, SchedulerConfig
from headway.core.events import TokensArrived
from headway.engine.engine import Engine, engine_info
from headway.runner.fake import FakeRunner
from support.byte_text import ByteTokenizer
from support.copying import copying
from support.gateway_app import MODEL
from support.gateway_stack import Stack, open_stack

pytestmark = pytest.mark.anyio

PROMPT = "def add(first, second): return first + second; " * 2


class LetterTokenizer(ByteTokenizer):
    """Bytes, of which the upper half is ASCII again: every token is a character."""

    eos_ids: tuple[int, ...] = ()

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id % 128])

    def is_special(self, token_id: int) -> bool:
        del token_id
        return False


def build(config: EngineConfig, clock: Clock) -> Engine:
    runner = FakeRunner(num_blocks=256, vocab_size=256, script=copying)
    return Engine(runner, config.scheduler, clock, engine_info(config.model, runner))


async def responses(
    max_draft_tokens: int, **fields: object
) -> tuple[dict[str, Any], list[dict[str, Any]], Stack]:
    """Return one request's whole response, its stream's chunks, and what served them."""
    config = EngineConfig(model=MODEL, scheduler=SchedulerConfig(max_draft_tokens=max_draft_tokens))
    async with open_stack(config, build, LetterTokenizer()) as stack:
        async with stack.post(PROMPT, stream=False, max_tokens=80, **fields) as exchange:
            await stack.arrive(1)
            await stack.step(82)
            whole = msgspec.json.decode(await exchange.read_body())
        stream: dict[str, Any] = {"stream_options": {"include_usage": True}, **fields}
        async with stack.post(PROMPT, max_tokens=80, **stream) as exchange:
            await stack.arrive(1)
            await stack.step(82)
            chunks = []
            while (event := await exchange.read_event()) != "[DONE]":
                assert event is not None
                chunks.append(msgspec.json.decode(event))
        stack.assert_idle()
        return whole, chunks, stack


def joined(chunks: list[dict[str, Any]], index: int) -> tuple[str, list[tuple[str, float]], list[str]]:
    """Return one choice's text, its tokens with log-probabilities, and its reasons to end."""
    text, scored, reasons = "", [], []
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["index"] == index:
                text += choice["text"]
                logprobs = choice["logprobs"] or {"tokens": [], "token_logprobs": []}
                scored += list(zip(logprobs["tokens"], logprobs["token_logprobs"], strict=True))
                reasons += [choice["finish_reason"]] if choice["finish_reason"] else []
    return text, scored, reasons


@pytest.mark.parametrize("start", [None, 20, 41])
async def test_a_client_cannot_tell(start: int | None) -> None:
    """With a stop string, from character `start` of the first choice, or without."""
    fields: dict[str, Any] = {"n": 2, "logprobs": 2, "temperature": 0.5}
    stop = None
    if start is not None:
        stop = (await responses(0, **fields))[0]["choices"][0]["text"][start : start + 4]
        fields["stop"] = stop
    whole, chunks, _ = await responses(0, **fields)
    faster, fewer, stack = await responses(8, **fields)
    assert faster["choices"] == whole["choices"]
    assert faster["usage"] == whole["usage"]
    assert fewer[-1]["usage"] == chunks[-1]["usage"]
    for index in range(2):
        text, scored, reasons = joined(fewer, index)
        assert (text, scored, reasons) == joined(chunks, index)
        assert text == "".join(token for token, _ in scored)[: len(text)] == whole["choices"][index]["text"]
        assert len(scored) == 80 or stop is not None
        assert stop is None or stop not in text
    assert stop is None or joined(fewer, 0)[2] == ["stop"]
    arrived = [event for event in stack.events if isinstance(event, TokensArrived)]
    assert max(event.num_tokens for event in arrived) > 3
    assert len(fewer) < 0.7 * len(chunks) or stop is not None


async def test_tokens_behind_a_stop_string_are_not_counted() -> None:
    """A run of accepted tokens may go beyond the text that ends the answer."""
    text = (await responses(0, temperature=0))[0]["choices"][0]["text"]
    for start in (10, 31, 47):
        whole, _, stack = await responses(8, stop=text[start : start + 5], temperature=0)
        arrived = sum(event.num_tokens for event in stack.events if isinstance(event, TokensArrived))
        completion = whole["usage"]["completion_tokens"]
        assert whole["choices"][0]["finish_reason"] == "stop"
        assert arrived == 2 * (completion - 1)  # whole and streamed, all but the first token
