"""One answer while it comes: as it comes, whole, cancelled, late, cut."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.client import (
    AnswerCut,
    CallError,
    CannedAnswer,
    Client,
    CodeContext,
    DeadlinePassed,
    Deadlines,
    Delta,
    Endpoint,
    Refused,
    ToolCall,
    Usage,
)
from headway.core.errors import ConfigError
from support.endpoint_scripts import ANSWERS, END, always, good, say
from support.scripted_endpoint import Asked, Script, ScriptedEndpoint, world
from support.scripted_server import Reply, refusal
from support.scripted_stream import DONE, chat, event, usage
from support.virtual_loop import VirtualLoop, run_virtually

MESSAGES = [{"role": "user", "content": "hi"}]
Test = Callable[[Client, ScriptedEndpoint, VirtualLoop], Coroutine[Any, Any, None]]


def serve(folder: Path, script: Script, test: Test, **rules: object) -> None:
    async def main(clock: VirtualLoop) -> None:
        async with world(clock, folder, e=script) as w:
            endpoint: dict[str, Any] = {"url": "http://e", "model": "m", "name": "e"}
            endpoint |= rules.pop("endpoint", {})  # type: ignore[call-overload]
            settings: dict[str, Any] = {"http": w.http, "clock": clock, **rules}
            client = Client([Endpoint(**endpoint)], **settings)
            await test(client, w.endpoints["e"], clock)
            await client.aclose()

    run_virtually(main)


def test_text_comes_as_it_is_written(tmp_path: Path) -> None:
    async def test(client: Client, _: ScriptedEndpoint, clock: VirtualLoop) -> None:
        start = clock.now
        async with client.stream(MESSAGES) as stream:
            came = [(text, round((clock.now - start) / 1e6)) async for text in stream.texts()]
        assert came == [("a", 500), ("a", 510), ("a", 520)]
        assert stream.answer.ttft_ns == pytest.approx(500e6, abs=1e6)
        assert stream.answer.total_ns == pytest.approx(530e6, abs=1e6)

    serve(tmp_path, always(good("a", ttft_ms=500)), test)


def test_a_whole_answer_has_everything(tmp_path: Path) -> None:
    reply = Reply(
        sent=[
            (10, chat(role="assistant", content="")),
            (20, chat(reasoning_content="hm")),
            (30, chat(content="4")),
            (40, chat("stop") + usage(3, prompt_tokens=7, cached_tokens=2) + DONE),
        ]
    )

    async def test(client: Client, endpoint: ScriptedEndpoint, _: VirtualLoop) -> None:
        answer = await client.chat(MESSAGES, temperature=0, max_tokens=5)
        assert (answer.text, answer.reasoning, answer.finish_reason) == ("4", "hm", "stop")
        assert (answer.endpoint, answer.model, answer.num_resumes) == ("e", "m", 0)
        assert answer.usage == Usage(prompt_tokens=7, completion_tokens=3, cached_tokens=2)
        assert answer.ttft_ns == pytest.approx(20e6, abs=1e6)
        assert [(each.why, each.outcome) for each in answer.attempts] == [("first", "answered")]
        asked = endpoint.asked[0]
        assert (asked.method, asked.path) == ("POST", "/v1/chat/completions")
        assert asked.headers["authorization"] == "Bearer key"
        assert asked.headers["x-extra"] == "1"
        assert asked.fields == {
            "messages": MESSAGES,
            "temperature": 0,
            "max_tokens": 2,
            "model": "m",
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    own = {"api_key": "key", "headers": {"X-Extra": "1"}, "fields": {"max_tokens": 2}}
    serve(tmp_path, always(reply), test, endpoint=own)


def test_tool_calls_come_as_they_are_written_and_are_merged(tmp_path: Path) -> None:
    def call(index: int, **fields: object) -> bytes:
        return chat(tool_calls=[{"index": index, **fields}])

    pieces = [
        call(0, id="c0", type="function", function={"name": "look", "arguments": ""}),
        call(0, function={"arguments": '{"a"'}),
        call(1, id="c1", type="function", function={"name": "find", "arguments": "{}"}),
        call(0, function={"arguments": ": 1}"}),
        chat("tool_calls") + DONE,
    ]

    async def test(client: Client, _: ScriptedEndpoint, __: VirtualLoop) -> None:
        async with client.stream(MESSAGES) as stream:
            deltas = [delta async for delta in stream]
        assert [piece.arguments for delta in deltas for piece in delta.tool_calls] == [
            "",
            '{"a"',
            "{}",
            ": 1}",
        ]
        assert stream.answer.tool_calls == (
            ToolCall(id="c0", name="look", arguments='{"a": 1}'),
            ToolCall(id="c1", name="find", arguments="{}"),
        )
        assert (stream.answer.text, stream.answer.finish_reason) == ("", "tool_calls")

    serve(tmp_path, always(Reply(sent=[(10.0 * i, piece) for i, piece in enumerate(pieces)])), test)


def test_an_empty_answer_is_an_answer(tmp_path: Path) -> None:
    async def test(client: Client, _: ScriptedEndpoint, __: VirtualLoop) -> None:
        answer = await client.chat(MESSAGES)
        assert (answer.text, answer.finish_reason) == ("", "stop")

    serve(tmp_path, always(Reply(sent=[(10, END)])), test)


@pytest.mark.parametrize("how", ["leave", "cancel", "cancel before the first token"])
def test_cancelling_hangs_up_at_once(tmp_path: Path, how: str) -> None:
    reply = Reply(sent=[(100, say("a")), (5000, say("b"))])

    async def test(client: Client, endpoint: ScriptedEndpoint, clock: VirtualLoop) -> None:
        if how == "leave":
            async with client.stream(MESSAGES) as stream:
                assert await anext(stream) == Delta(text="a")
        else:
            task = asyncio.ensure_future(client.chat(MESSAGES))
            await asyncio.sleep(0.05 if "before" in how else 0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        now_ms = clock.now / 1e6 - 1000
        await asyncio.sleep(0.001)  # the endpoint's own tasks come in their turn
        assert endpoint.hung_up_ms == [pytest.approx(now_ms, abs=0.1)]

    serve(tmp_path, always(reply), test)


def test_connections_are_used_again(tmp_path: Path) -> None:
    async def test(client: Client, endpoint: ScriptedEndpoint, _: VirtualLoop) -> None:
        for _turn in range(3):
            await client.chat(MESSAGES)
            await asyncio.sleep(0.001)
        assert (len(endpoint.asked), endpoint.num_connections) == (3, 1)

    serve(tmp_path, always(good("a")), test)


def test_what_follows_a_whole_answer_changes_nothing(tmp_path: Path) -> None:
    async def test(client: Client, endpoint: ScriptedEndpoint, _: VirtualLoop) -> None:
        async with client.stream(MESSAGES) as stream:
            await anext(stream)
            await asyncio.sleep(60)  # it is whole and its connection broken long before it is read
            assert (await stream.collect()).text == "ab"
        assert len(endpoint.asked) == 1

    reply = Reply(sent=[(10, say("a") + say("b") + END)], ending="closed")
    serve(tmp_path, always(reply), test, endpoint={"resumable": True})


def test_a_response_that_does_not_end_holds_nobody_up(tmp_path: Path) -> None:
    async def test(client: Client, endpoint: ScriptedEndpoint, clock: VirtualLoop) -> None:
        start = clock.now
        assert (await client.chat(MESSAGES)).text == "a"
        assert clock.now - start == pytest.approx(20e6, abs=1e6)
        await asyncio.sleep(2)
        assert endpoint.hung_up_ms == [pytest.approx(1020, abs=5)]

    serve(tmp_path, always(Reply(sent=[(10, say("a")), (20, END)], ending="silent")), test)


@pytest.mark.parametrize(("fate", "error"), [("dies", AnswerCut), ("no-done", AnswerCut), ("errs", Refused)])
def test_what_was_shown_is_kept_and_nothing_else_follows(
    tmp_path: Path, fate: str, error: type[CallError]
) -> None:
    async def test(client: Client, endpoint: ScriptedEndpoint, _: VirtualLoop) -> None:
        async with client.stream(MESSAGES) as stream:
            with pytest.raises(error) as raised:
                await stream.collect()
        assert raised.value.text == stream.text == "a"
        assert len(endpoint.asked) == 1
        with pytest.raises(RuntimeError):
            str(stream.answer)

    serve(tmp_path, always(ANSWERS[fate]("a")), test, last_resort=CannedAnswer())


def test_the_total_deadline_ends_an_answer_that_goes_on(tmp_path: Path) -> None:
    async def test(client: Client, endpoint: ScriptedEndpoint, clock: VirtualLoop) -> None:
        start = clock.now
        with pytest.raises(DeadlinePassed) as raised:
            await client.chat(MESSAGES, deadlines=Deadlines(total_s=0.2))
        assert clock.now - start == pytest.approx(200e6, abs=1e6)
        assert 10 <= len(raised.value.text) <= 20
        await asyncio.sleep(0.001)
        assert len(endpoint.hung_up_ms) == 1

    serve(tmp_path, always(good("a", ttft_ms=10, num_words=1000)), test)


def test_a_stream_that_says_nothing_is_cut_but_a_comment_is_life(tmp_path: Path) -> None:
    pings: list[tuple[float, bytes]] = [(1000.0 * second, b": ping\n") for second in range(1, 6)]

    async def test(client: Client, _: ScriptedEndpoint, clock: VirtualLoop) -> None:
        start = clock.now
        with pytest.raises(AnswerCut, match="silent"):
            await client.chat(MESSAGES, deadlines=Deadlines(idle_s=2))
        assert clock.now - start == pytest.approx(7e9, abs=1e7)

    serve(tmp_path, always(Reply(sent=[(50, say("a")), *pings], ending="silent")), test)


def test_a_reader_that_takes_nothing_holds_the_endpoint_back(tmp_path: Path) -> None:
    num_sent = 0

    def words() -> Iterator[tuple[float, bytes]]:
        nonlocal num_sent
        for num_sent in range(1, 1001):  # noqa: B007 - read below
            yield 10, say("a" * 10_000)
        yield 20, END

    async def test(client: Client, _: ScriptedEndpoint, __: VirtualLoop) -> None:
        async with client.stream(MESSAGES) as stream:
            await anext(stream)
            await asyncio.sleep(1)
            assert 256 <= num_sent < 600
            await stream.collect()
        assert stream.text == "a" * 10_000_000

    serve(tmp_path, always(Reply(sent=words())), test)


def test_nothing_is_asked_before_the_first_delta_is(tmp_path: Path) -> None:
    async def test(client: Client, endpoint: ScriptedEndpoint, _: VirtualLoop) -> None:
        async with client.stream(MESSAGES):
            await asyncio.sleep(1)
        assert endpoint.asked == []

    serve(tmp_path, always(good("a")), test)


def test_a_deadline_is_told_to_who_keeps_it(tmp_path: Path) -> None:
    async def test(client: Client, endpoint: ScriptedEndpoint, _: VirtualLoop) -> None:
        await client.chat(MESSAGES)
        assert endpoint.asked[0].headers["x-headway-ttft-ms"] == "4000"
        assert "x-headway-resumable" not in endpoint.asked[0].headers

    serve(tmp_path, always(good("a")), test, endpoint={"send_deadline": True})


def test_text_completions(tmp_path: Path) -> None:
    reply = Reply(sent=[(10, event({"choices": [{"text": "42", "finish_reason": "length"}]}) + DONE)])

    async def test(client: Client, endpoint: ScriptedEndpoint, _: VirtualLoop) -> None:
        answer = await client.complete("6 * 7 = ", suffix="\n", max_tokens=2)
        assert (answer.text, answer.finish_reason) == ("42", "length")
        async with client.stream(prompt="6 * 7 = ") as stream:
            assert (await stream.collect()).text == "42"
        assert endpoint.asked[0].path == "/v1/completions"
        assert endpoint.asked[0].fields["suffix"] == "\n"
        assert "suffix" not in endpoint.asked[1].fields

    serve(tmp_path, always(reply), test)


NO_SUFFIX = json.dumps({"error": {"message": "leave `suffix` out", "param": "suffix"}}).encode()


@pytest.mark.parametrize(
    "no",
    [
        Reply(head=b"HTTP/1.1 400 X\r\nContent-Length: %d\r\n\r\n" % len(NO_SUFFIX), sent=[(0, NO_SUFFIX)]),
        refusal("404 Not Found"),
    ],
)
def test_who_cannot_fill_in_the_middle_gets_a_chat_and_is_not_asked_again(tmp_path: Path, no: Reply) -> None:
    def script(_: int, asked: Asked) -> Reply:
        if asked.path == "/v1/completions":
            return no
        return Reply(sent=[(10, chat(content="```python\nreturn a + b\n```")), (20, END)])

    async def test(client: Client, endpoint: ScriptedEndpoint, _: VirtualLoop) -> None:
        context = CodeContext(prefix="def add(a, b):\n    return ", suffix="\n", path="add.py")
        for _turn in range(2):
            answer = await client.fill_in(context, max_tokens=9)
            assert answer.text == "a + b"
            assert len(answer.attempts) == 1
        paths = [asked.path.rpartition("v1/")[2] for asked in endpoint.asked]
        assert paths == ["completions", "chat/completions", "chat/completions"]
        assert endpoint.asked[1].fields["max_tokens"] == 9

    serve(tmp_path, script, test)


def test_what_can_never_be_asked(tmp_path: Path) -> None:
    async def test(client: Client, endpoint: ScriptedEndpoint, _: VirtualLoop) -> None:
        with pytest.raises(ConfigError, match="`stream`"):
            await client.chat(MESSAGES, stream=False)
        with pytest.raises(ConfigError, match="message"):
            await client.chat([])
        with pytest.raises(ConfigError, match="messages or a prompt"):
            client.stream()
        await client.aclose()
        with pytest.raises(RuntimeError, match="closed"):
            await client.chat(MESSAGES)
        assert endpoint.asked == []

    serve(tmp_path, always(good("a")), test)
