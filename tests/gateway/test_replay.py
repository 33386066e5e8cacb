"""A stream that another process goes on with is, byte for byte, the stream that one process would have sent.

Any tokens in any steps, cut between any two of them: text with half characters, stop strings, tool calls, log-probabilities,
several choices and prompts, in all four APIs.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import msgspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from headway.core.caller import Caller, CallerLimits
from headway.core.clock import Clock, ManualClock
from headway.core.config import EngineConfig
from headway.core.errors import EngineDied
from headway.core.messages import ChoiceFinished, EngineInfo, Finished, Usage
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.engine.engine import Engine, engine_info
from headway.engine.inline import InlineEngineClient
from headway.gateway.answer import Answer, AnswerHead
from headway.gateway.chat import ChatEndpoint
from headway.gateway.choices import Choices
from headway.gateway.completions import CompletionEndpoint
from headway.gateway.generate import Endpoint
from headway.gateway.generation import Generation
from headway.gateway.merging import Batch
from headway.gateway.messages import MessagesEndpoint
from headway.gateway.replay import replay
from headway.gateway.request_record import RequestRecord
from headway.gateway.responses import ResponsesEndpoint
from headway.gateway.step_record import StepRecord, decode_steps, encode_step
from headway.gateway.stored_call import StoredCall, decode_call, encode_call
from headway.gateway.text_events import Piece
from headway.runner.fake import FakeRunner
from headway.wire.service_headers import ServiceTerms
from support.gateway_app import served
from support.scripted_client import INFO, FakeEngineClient, delta
from support.tool_text import CITY_SCHEMA, HERMES_SOURCE, WEATHER, MarkedTokenizer, template

TOKENIZER: Final = MarkedTokenizer()
CHAT: Final = ChatEndpoint()
ENDPOINTS: Final[dict[str, Endpoint[Any]]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": CompletionEndpoint(),
    "/v1/responses": ResponsesEndpoint(CHAT),
    "/v1/messages": MessagesEndpoint(CHAT),
}
CALL: Final = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
FRAGMENTS: Final = (
    "so ",
    "é",
    "日本",
    "\U0001f600",
    " ",
    "\n",
    "ST",
    "STOP",
    "<tool",
    CALL,
    CALL,
    CALL[:40],
    '{"name"',
)

Said = dict[int, str]
"""Text by choice, "|" at its end."""


@dataclass(frozen=True)
class Gain:
    """What one choice gets in a step; `end`: the engine ends it with that."""

    prompt: int
    choice: int
    token_ids: tuple[int, ...]
    end: Literal["stop", "length"] | None


@dataclass(frozen=True)
class Case:
    path: str
    body: dict[str, object]
    num_prompts: int
    n: int
    logprobs: bool
    gains: tuple[Gain, ...]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    path = draw(st.sampled_from(sorted(ENDPOINTS)))
    stop = draw(st.sampled_from([[], ["STOP"], ["STOP", "so so"]]))
    tools, logprobs = draw(st.booleans()), draw(st.booleans())
    n = draw(st.sampled_from([1, 2, 3])) if path.endswith("completions") else 1
    num_prompts = 1
    talk = [{"role": "user", "content": "hi"}]
    match path:
        case "/v1/chat/completions":
            body: dict[str, object] = {"messages": talk, "n": n, "stop": stop, "logprobs": logprobs}
            body |= {"top_logprobs": 1} if logprobs else {}
            body |= {"tools": [WEATHER]} if tools else {}
            body |= {"stream_options": {"include_usage": True}}
        case "/v1/completions":
            num_prompts = draw(st.sampled_from([1, 2]))
            body = {"prompt": ["hi", "ho"][:num_prompts], "n": n, "stop": stop, "echo": draw(st.booleans())}
            body |= {"logprobs": 1, "echo": False} if logprobs else {}
            body |= {"stream_options": {"include_usage": True}}
        case "/v1/responses":
            body = {"input": "hi"}
            body |= (
                {"tools": [{"type": "function", "name": "get_weather", "parameters": CITY_SCHEMA}]}
                if tools
                else {}
            )
        case _:
            body = {"messages": talk, "max_tokens": 100, "stop_sequences": stop}
            body |= {"tools": [{"name": "get_weather", "input_schema": CITY_SCHEMA}]} if tools else {}
    body["stream"] = True
    gains = draw(gains_of(num_prompts, n))
    return Case(path, body, num_prompts, n, logprobs and path.endswith("completions"), gains)


@st.composite
def gains_of(draw: st.DrawFn, num_prompts: int, n: int) -> tuple[Gain, ...]:
    """Every choice gets all of its tokens, some a step, and one of them in each step."""
    left = {
        (prompt, choice): TOKENIZER.encode("".join(draw(st.lists(st.sampled_from(FRAGMENTS), max_size=6))))
        for prompt in range(num_prompts)
        for choice in range(n)
    }
    gains: list[Gain] = []
    while left:
        prompt, choice = key = draw(st.sampled_from(sorted(left)))
        num_tokens = draw(st.integers(1, 9))
        ids, left[key] = left[key][:num_tokens], left[key][num_tokens:]
        end: Literal["stop", "length"] | None = None
        if not left[key]:
            del left[key]
            end = draw(st.sampled_from(["stop", "length"]))
        gains.append(Gain(prompt, choice, tuple(ids), end))
    return tuple(gains)


class SteppedEngine(FakeEngineClient):
    """Gives what the test says and hears of no cancellation."""

    def __init__(self, info: EngineInfo = INFO) -> None:
        super().__init__(info)
        self.sources: dict[str, asyncio.Queue[Batch | None]] = {}

    def submit_nowait(self, request: Request) -> AsyncIterator[Batch]:
        self.requests.append(request)
        queue = self.sources[request.request_id] = asyncio.Queue()
        return _until_none(queue)

    def cancel_nowait(self, *_: object) -> None:
        pass

    def request_of(self, gain: Gain) -> Request | None:
        """The request that has the choice of `gain`; None if it is not asked for any more."""
        for request in self.requests:
            choices = range(request.first_choice, request.first_choice + request.n)
            if request.request_id.startswith(f"r-{gain.prompt}") and gain.choice in choices:
                return request
        return None

    def give(self, request: Request, gain: Gain, *, logprobs: bool) -> None:
        batch: Batch = (
            (delta(request, gain.token_ids, gain.choice, logprobs=logprobs),) if gain.token_ids else ()
        )
        if gain.end is not None:
            batch = (*batch, ChoiceFinished(request.request_id, gain.choice, gain.end))
        self.sources[request.request_id].put_nowait(batch)

    def finish(self, request: Request, *_: object) -> None:
        usage = Usage(prompt_tokens=1, completion_tokens=1)
        self.sources[request.request_id].put_nowait((Finished(request_id=request.request_id, usage=usage),))
        self.sources[request.request_id].put_nowait(None)


async def _until_none(queue: "asyncio.Queue[Batch | None]") -> AsyncIterator[Batch]:
    while (batch := await queue.get()) is not None:
        yield batch


def stored(case: Case, endpoint: Endpoint[Any]) -> StoredCall:
    requests = tuple(
        Request(
            request_id=f"r-{prompt}",
            token_ids=(104, 105, 111),
            sampling=SamplingParams(num_logprobs=1 if case.logprobs else None),
            max_tokens=1000,
            n=case.n,
        )
        for prompt in range(case.num_prompts)
    )
    return StoredCall(
        endpoint=case.path,
        body=msgspec.json.encode(case.body),
        head=AnswerHead(
            id=endpoint.id_prefix + "r",
            created_s=1_800_000_000,
            model="fake",
            system_fingerprint=INFO.system_fingerprint,
            include_usage=True,
            num_prompt_tokens=3 * case.num_prompts,
        ),
        requests=requests,
        call_key=b"k" * 16,
        terms=ServiceTerms(tenant="a"),
        caller=Caller(
            token_id="t",
            tenant="a",
            user="u",
            service_class="normal",
            kind="user",
            limits=CallerLimits(requests_per_s=None, tokens_per_min=None, max_concurrent=None),
        ),
    )


def new_record() -> RequestRecord:
    return RequestRecord(
        request_id="r", model="fake", service_class="normal", arrival_ns=0, clock=ManualClock(), hook=None
    )


async def sent(
    case: Case, engine: SteppedEngine, generation: Generation, answer: Answer, gains: Iterable[Gain]
) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Give the engine's tokens one after the other; return (bytes sent, record) of each batch of events, and the end."""
    batches: list[tuple[bytes, bytes]] = []
    async with generation:
        events = generation.events()

        async def take() -> None:
            batches.append((answer.stream(await anext(events)), encode_step(generation.step)))

        for gain in gains:
            request = engine.request_of(gain)
            if request is not None:
                engine.give(request, gain, logprobs=case.logprobs)
                await take()
        for request in engine.requests:
            engine.finish(request)
            await take()
        with pytest.raises(StopAsyncIteration):
            await anext(events)
    return batches, answer.stream_end(generation.usage)


async def check(case: Case, cuts: list[int]) -> None:
    endpoint = ENDPOINTS[case.path]
    call = stored(case, endpoint)
    engine = SteppedEngine()
    model = served(engine, tokenizer=TOKENIZER, chat_template=template(HERMES_SOURCE))
    parsed = endpoint.parse(call.body)
    choices = Choices(call.requests, endpoint.text_maker(parsed, model, call.call_key))
    generation = Generation(engine=engine, choices=choices, record=new_record())
    answer = endpoint.answer(parsed, call.head, TOKENIZER)
    whole, end = await sent(case, engine, generation, answer, case.gains)
    expected = b"".join(data for data, _ in whole) + end
    for what in (b"call_", b"STOP", b'"length"'):
        if what in expected:
            event(what.decode())

    for cut in cuts:
        num_before = cut % (len(whole) + 1)
        before = b"".join(data for data, _ in whole[:num_before])
        log = b"".join(record for _, record in whole[:num_before])
        engine = SteppedEngine()
        model = served(engine, tokenizer=TOKENIZER, chat_template=template(HERMES_SOURCE))
        kept = decode_call(encode_call(call))
        again, answer = replay(endpoint, model, kept, decode_steps(log), new_record())
        after, end = await sent(case, engine, again, answer, case.gains[num_before:])
        assert before + b"".join(data for data, _ in after) + end == expected
        assert all(request.resumes for request in engine.requests)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(case=cases(), cuts=st.lists(st.integers(0, 99), min_size=1, max_size=3))
def test_any_stream_cut_anywhere_goes_on_without_a_seam(case: Case, cuts: list[int]) -> None:
    asyncio.run(check(case, cuts))


class Numbers(MarkedTokenizer):
    """Writes each token of the fake runner as its number."""

    def token_bytes(self, token_id: int) -> bytes:
        return b"<%d>" % token_id

    def is_special(self, token_id: int) -> bool:
        del token_id
        return False


def build(config: EngineConfig, clock: Clock) -> Engine:
    runner = FakeRunner(num_blocks=64, max_context=512)
    return Engine(runner, config.scheduler, clock, engine_info(config.model, runner))


async def engines_text(
    call: StoredCall, steps: list[StepRecord] | None, num_batches: int | None
) -> tuple[Said, list[StepRecord]]:
    """Have an engine of its own generate what is left of `call` after `steps`, or so many batches of it."""
    engine = InlineEngineClient(EngineConfig(model="fake"), ManualClock(), factory=build, auto_step=True)
    await engine.start()
    endpoint, model = ENDPOINTS[call.endpoint], served(engine, tokenizer=Numbers())
    made: list[StepRecord] = []
    said: Said = {}
    if steps is None:
        choices = Choices(call.requests, endpoint.text_maker(endpoint.parse(call.body), model, call.call_key))
        generation = Generation(engine=engine, choices=choices, record=new_record())
    else:
        generation, _ = replay(endpoint, model, call, steps, new_record())
    async with generation:
        async for events in generation.events():
            made.append(generation.step)
            for piece in events:
                said[piece.choice] = said.get(piece.choice, "") + (
                    piece.text if isinstance(piece, Piece) else "|"
                )
            if len(made) == num_batches:
                generation.cancel()
                break
    await engine.close()
    return said, made


@settings(max_examples=30, deadline=None, derandomize=True)
@given(cut=st.integers(1, 30), seed=st.integers(0, 3), stop=st.sampled_from([[], ["9>"]]))
def test_what_a_gateway_left_a_real_engine_ends(cut: int, seed: int, stop: list[str]) -> None:
    """Two prompts, three choices each, from an engine that drafts: all that was said is what one engine says."""
    body: dict[str, object] = {"prompt": ["hi", "ho"], "n": 3, "stop": stop, "stream": True}
    case = Case("/v1/completions", body, 2, 3, False, ())
    call = stored(case, ENDPOINTS[case.path])
    fingerprint = engine_info("fake", FakeRunner(num_blocks=64, max_context=512)).system_fingerprint
    sampling = SamplingParams(temperature=1.0, seed=seed, logit_bias=((5, 100.0), (9, 100.0), (7, 100.0)))
    call = msgspec.structs.replace(
        call,
        head=replace(call.head, system_fingerprint=fingerprint),
        requests=tuple(
            msgspec.structs.replace(request, sampling=sampling, max_tokens=24, token_ids=(number, 2, 3))
            for number, request in enumerate(call.requests)
        ),
    )

    async def run() -> None:
        whole, _ = await engines_text(call, None, None)
        assert len(set(whole.values())) > 3
        before, steps = await engines_text(call, None, cut)
        after, _ = await engines_text(decode_call(encode_call(call)), steps, None)
        assert {choice: before.get(choice, "") + after.get(choice, "") for choice in whole} == whole
        event("cut" if after else "it had ended")

    asyncio.run(run())


def test_what_the_cache_gave_the_first_engine_counts() -> None:
    """Of a later engine only what it found of the prompt does: it may find the beginning of the answer, too."""
    case = Case("/v1/completions", {"prompt": ["hi", "ho"], "stream": True}, 2, 1, False, ())
    choices = Choices(stored(case, ENDPOINTS[case.path]).requests, served(SteppedEngine()).text_maker(()))
    for prompt, num_cached in ((0, 2), (0, 0), (1, 9)):
        choices.replay(StepRecord(prompt, num_cached=num_cached))
    assert choices.usage == Usage(prompt_tokens=6, completion_tokens=0, cached_tokens=2 + 3)


@pytest.mark.parametrize(
    "changes", [{"repeats_exactly": False}, {"system_fingerprint": "another"}], ids=["inexact", "different"]
)
def test_an_engine_that_would_go_on_differently_does_not(changes: Mapping[str, Any]) -> None:
    case = Case("/v1/completions", {"prompt": "hi", "stream": True}, 1, 1, False, ())
    endpoint = ENDPOINTS[case.path]
    engine = SteppedEngine(msgspec.structs.replace(INFO, **changes))
    with pytest.raises(EngineDied, match="different"):
        replay(endpoint, served(engine), stored(case, endpoint), (), new_record())


def test_a_log_that_was_cut_short_is_not_read() -> None:
    case = Case("/v1/completions", {"prompt": "hi", "stream": True}, 1, 1, False, ())
    data = encode_call(stored(case, ENDPOINTS[case.path]))
    with pytest.raises(msgspec.DecodeError):
        decode_call(data[:-1])
