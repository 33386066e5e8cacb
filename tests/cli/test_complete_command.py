"""`headway complete`: what an editor sends, what it gets, and by which exit code it knows."""

import argparse
import asyncio
import io
import json
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

from headway.cli import complete
from headway.cli.complete_lines import serve_lines, split_lines
from headway.cli.complete_outcome import Exit, Outcome, exit_code
from headway.cli.complete_request import Cursor, EditorRequest, parse_request, split_at
from headway.cli.main import main
from headway.core.errors import InvalidRequest
from support.endpoint_scripts import END, say
from support.live_server import live_server
from support.real_server import headway

# What an editor sends.


def test_a_request_has_prefix_and_suffix_or_text_and_cursor() -> None:
    request = parse_request(b'{"prefix": "a", "suffix": "b", "path": "x.py", "id": 7}')
    assert (request.context.prefix, request.context.suffix, request.context.path) == ("a", "b", "x.py")
    request = parse_request(b'{"text": "ab\\ncd", "cursor": {"line": 1, "character": 1}}')
    assert (request.context.prefix, request.context.suffix) == ("ab\nc", "d")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"prefix": 1}',
        b'{"prefix": "a", "text": "b"}',
        b'{"text": "b"}',
        b'{"text": "b", "cursor": {"line": 0, "character": 0}, "suffix": "c"}',
        b'{"prefix": "a", "cursor": {"line": -1, "character": 0}}',
        b'{"prefix": "a", "prefx": "b"}',
        b'{"prefix": "a", "budget_ms": 0}',
        b'{"prefix": "a", "max_tokens": 0}',
        b'{"prefix": "\xff"}',
        b"[" * 5000,
    ],
)
def test_what_is_no_request_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        parse_request(data)


@pytest.mark.parametrize(
    ("text", "line", "character", "prefix"),
    [
        ("ab\ncd", 0, 0, ""),
        ("ab\ncd", 0, 9, "ab"),
        ("ab\r\ncd", 0, 9, "ab"),
        ("ab\ncd", 1, 2, "ab\ncd"),
        ("ab\ncd", 7, 0, "ab\ncd"),
        ("🙂b", 0, 2, "🙂"),  # UTF-16 counts it as two
        ("🙂b", 0, 1, ""),  # in the middle of it
        ("🙂b", 0, 3, "🙂b"),
    ],
)
def test_cursors_are_those_of_the_language_server_protocol(
    text: str, line: int, character: int, prefix: str
) -> None:
    assert split_at(text, Cursor(line, character)) == (prefix, text[len(prefix) :])


@given(st.text(alphabet="a\n\r🙂é", max_size=30), st.integers(0, 6), st.integers(0, 12))
def test_splitting_loses_nothing(text: str, line: int, character: int) -> None:
    assert "".join(split_at(text, Cursor(line, character))) == text


# What it gets.


class Endpoint:
    """Completes with `words`, or answers `status`; "stay" in the prompt: it says nothing."""

    def __init__(self, *words: str, status: int = 200, told: bytes = b"") -> None:
        self.words = words
        self.status = status
        self.told = told

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        body = (await receive())["body"]
        if b"stay" in body:
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        headers = [(b"content-type", b"text/event-stream"), (b"retry-after", b"60")]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        data = b"".join(map(say, self.words)) + END
        await send({"type": "http.response.body", "body": data if self.status == 200 else self.told})


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process; return its exit code and what it printed."""

    def run(stdin: object, *arguments: str) -> tuple[int, str, str]:
        data = json.dumps(stdin).encode()
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
        code = main(["complete", "--stdin", "--budget-ms", "30000", *arguments])
        return code, *capsys.readouterr()

    return run


def test_the_completion_and_nothing_else_is_printed(run: Run) -> None:
    with live_server(Endpoint("a ", "+ b")) as (host, port):
        assert run({"prefix": "return "}, "--url", f"http://{host}:{port}") == (Exit.ANSWER, "a + b", "")


def test_json_tells_more(run: Run) -> None:
    request = {"id": "r1", "prefix": "return ", "cursor": {"line": 3, "character": 7}}
    with live_server(Endpoint("a")) as (host, port):
        code, out, _ = run(request, "--json", "--url", f"http://{host}:{port}", "--model", "m")
    told = json.loads(out)
    assert (code, told["id"], told["status"], told["text"]) == (0, "r1", "answer", "a")
    assert told["cursor"] == {"line": 3, "character": 7}
    assert told["endpoint"] == f"m at {host}:{port}"
    assert 0 < told["ttft_ms"] <= told["total_ms"]


@pytest.mark.parametrize(
    ("endpoint", "code", "status"),
    [
        (Endpoint(), Exit.EMPTY, "empty"),
        (Endpoint(status=429), Exit.REFUSED, "refused"),
        (Endpoint(status=503), Exit.REFUSED, "refused"),
        (Endpoint(status=401), Exit.MISTAKE, "mistake"),
        (Endpoint(status=400), Exit.MISTAKE, "mistake"),
    ],
)
def test_exit_codes(run: Run, endpoint: Endpoint, code: Exit, status: str) -> None:
    with live_server(endpoint) as (host, port):
        got, out, _ = run({"prefix": "x"}, "--json", "--url", f"http://{host}:{port}")
    assert (got, json.loads(out)["status"]) == (code, status)
    assert ("--api-key-env" in out) is (endpoint.status == 401)


def test_after_the_budget_an_editor_need_not_wait(run: Run) -> None:
    with live_server(Endpoint()) as (host, port):
        code, out, err = run({"prefix": "stay", "budget_ms": 50}, "--url", f"http://{host}:{port}")
    assert (code, out) == (Exit.DEADLINE, "")
    assert err.startswith("headway: No first token came in time.")


def test_a_servers_words_stay_on_one_line(run: Run) -> None:
    told = b'{"error": {"message": "no\\n\\u001b[2J"}}'
    with live_server(Endpoint(status=400, told=told)) as (host, port):
        code, _, err = run({"prefix": "x"}, "--url", f"http://{host}:{port}")
    assert (code, err) == (Exit.MISTAKE, "headway: no\\n\\x1b[2J\n")


def test_a_fallback_answers_for_a_server_that_is_not_there(run: Run) -> None:
    with live_server(Endpoint("b")) as (host, port):
        code, out, _ = run(
            {"prefix": "x"},
            "--url",
            "http://127.0.0.1:1",
            "--fallback",
            f"http://{host}:{port},model=small",
        )
    assert (code, out) == (Exit.ANSWER, "b")


def test_nobody_there(run: Run) -> None:
    code, out, err = run({"prefix": "x", "budget_ms": 1000}, "--url", "http://127.0.0.1:1")
    assert (code, out) == (Exit.UNREACHABLE, "")
    assert "cannot be reached" in err


@pytest.mark.parametrize(
    ("stdin", "arguments"),
    [
        ({"prefx": "x"}, ()),
        ({"prefix": "x"}, ("--url", "localhost:8000")),
        ({"prefix": "x"}, ("--fallback", "http://h,modle=m")),
        ({"prefix": "x"}, ("--api-key-env", "HEADWAY_NO_SUCH_KEY"[8:])),
        ({"prefix": "x"}, ("--budget-ms", "nan")),
        ({"prefix": "x"}, ("--max-tokens", "0")),
    ],
)
def test_what_somebody_must_mend(run: Run, stdin: object, arguments: tuple[str, ...]) -> None:
    code, out, err = run(stdin, *arguments)
    assert (code, out) == (Exit.MISTAKE, "")
    assert err.startswith("headway: ")
    assert err.count("\n") == 1


def test_every_status_has_an_exit_code() -> None:
    assert {exit_code(Outcome(status=status.name.lower())) for status in Exit} == set(Exit)


def test_the_reference_tells_the_codes_and_the_budget() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference.md").read_text()
    page = page[page.index("### `complete`") :]
    page = page[: page.index("\n### ", 1)]
    told = {name: int(code) for code, name in re.findall(r"^\| (\d) \| `?(?:an )?(\w+)", page, re.MULTILINE)}
    assert told == {status.name.lower(): status.value for status in Exit}
    parser = argparse.ArgumentParser()
    complete.add_parser(parser.add_subparsers())
    assert parser.parse_args(["complete", "--stdin"]).budget_ms == 800
    assert re.search(r"^\| `--budget-ms` \| 800 \|", page, re.MULTILINE)


def test_as_a_process() -> None:
    with live_server(Endpoint("a")) as (host, port):
        url = f"http://{host}:{port}"
        done = headway("complete", "--stdin", "--budget-ms", "30000", "--url", url, stdin='{"prefix": "x"}')
        assert (done.status, done.stdout, done.stderr) == (0, "a", "")
        lines = '{"id": 1, "prefix": "x"}\nnonsense\n{"id": 2, "prefix": "y"}'
        done = headway("complete", "--json-lines", "--budget-ms", "30000", "--url", url, stdin=lines)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.status == 0
    assert {(each["id"], each["status"]) for each in told} in (
        {(1, "cancelled"), (None, "mistake"), (2, "answer")},
        {(1, "answer"), (None, "mistake"), (2, "answer")},
    )


# One after the other.


def serve(lines: list[bytes], answer: Callable[[EditorRequest], Awaitable[Outcome]]) -> list[Outcome]:
    told: list[Outcome] = []

    async def sent() -> AsyncIterator[bytes]:
        for line in lines:
            yield line
            for _ in range(5):  # tasks come in their turn
                await asyncio.sleep(0)

    asyncio.run(serve_lines(sent(), answer, told.append))
    return told


async def never(request: EditorRequest) -> Outcome:
    if request.prefix == "stay":
        await asyncio.get_running_loop().create_future()
    return Outcome(id=request.id, status="answer", text=request.prefix or "")


def test_a_newer_request_cancels_the_older() -> None:
    lines = [b'{"id": 1, "prefix": "stay"}', b"", b'{"id": 2, "prefix": "stay"}', b'{"id": 3, "prefix": "a"}']
    assert [(each.id, each.status) for each in serve(lines, never)] == [
        (1, "cancelled"),
        (2, "cancelled"),
        (3, "answer"),
    ]


def test_one_that_was_answered_is_not_cancelled() -> None:
    lines = [b'{"id": 1, "prefix": "a"}', b'{"id": 2, "prefix": "b"}']
    assert [(each.id, each.status) for each in serve(lines, never)] == [(1, "answer"), (2, "answer")]


def test_nonsense_is_answered_and_cancels_nothing() -> None:
    told = serve([b'{"id": 1, "prefix": "a"}', b"nonsense"], never)
    assert [(each.id, each.status) for each in told] == [(1, "answer"), (None, "mistake")]


def test_a_bug_of_ours_is_not_hidden() -> None:
    async def bug(_: EditorRequest) -> Outcome:
        raise ZeroDivisionError

    for lines in ([b'{"prefix": "a"}'], [b'{"prefix": "a"}', b'{"prefix": "b"}']):
        with pytest.raises(ZeroDivisionError):
            serve(lines, bug)


@given(st.lists(st.binary(max_size=5), max_size=10))
def test_lines_are_whole_however_they_come(pieces: list[bytes]) -> None:
    async def sent() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    async def split() -> list[bytes]:
        return [line async for line in split_lines(sent())]

    data = b"".join(pieces)
    assert asyncio.run(split()) == [
        *data.split(b"\n")[:-1],
        *([data.split(b"\n")[-1]] if data.split(b"\n")[-1] else []),
    ]


def test_an_editor_that_reads_no_more_ends_it() -> None:
    def tell(_: Outcome) -> None:
        raise BrokenPipeError

    async def sent() -> AsyncIterator[bytes]:
        yield b'{"prefix": "a"}'
        for _ in range(5):
            await asyncio.sleep(0)
        yield b'{"prefix": "b"}'

    with pytest.raises(BrokenPipeError):
        asyncio.run(serve_lines(sent(), never, tell))


def test_a_closed_input_is_no_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["complete", "--stdin"]) == Exit.MISTAKE
    assert "nothing came" in capsys.readouterr().err


def test_text_is_utf8_in_any_locale() -> None:
    with live_server(Endpoint("日本")) as (host, port):
        done = headway(
            "complete", "--stdin", "--budget-ms", "30000", "--url", f"http://{host}:{port}",
            stdin='{"prefix": "x"}', env={"PYTHONIOENCODING": "ascii"},
        )  # fmt: skip
        assert (done.status, done.stdout, done.stderr) == (0, "日本", "")
