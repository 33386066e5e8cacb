"""Streams that are cut and go on: by a server of the resumable protocol, on a script of cuts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.client import Answer, AnswerCut, CallError, CannedAnswer, Client, Deadlines, Endpoint, Refused
from headway.wire.sse import DONE, numbered
from support.endpoint_scripts import good, whole
from support.scripted_endpoint import Asked, ScriptedEndpoint, world
from support.scripted_server import Reply, refusal
from support.scripted_stream import chat
from support.virtual_loop import VirtualLoop, run_virtually

STREAM = "0123456789abcdef0123456789abcdef"
WORDS = "The answer is forty-two."
PIECES = [*(chat(content=c) for c in WORDS), chat("stop"), DONE]


def number(pieces: Sequence[bytes], first: int = 1) -> list[bytes]:
    datas = [piece.removeprefix(b"data: ").rstrip() for piece in pieces]
    return [numbered(f"{STREAM}.1.{seq}", data) for seq, data in enumerate(datas, first)]


EVENTS = number(PIECES)
CLOSED = Reply(head=b"", ending="closed")


@dataclass(frozen=True, slots=True)
class Part:
    """What one connection gets: so many events after the cursor, and so many again of those before it."""

    num_events: int
    num_again: int = 0


class Server:
    """A server of the protocol. `connections`: what each gets in turn, then everything to the end."""

    def __init__(self, connections: Sequence[Part | Reply], pieces: Sequence[bytes] = PIECES) -> None:
        self._events = number(pieces)
        self._connections = list(connections)
        self.afters: list[int] = []
        self.deleted = 0
        self.acked: list[bytes] = []

    def __call__(self, number: int, asked: Asked) -> Reply:
        del number
        if asked.method == "DELETE":
            assert asked.path == f"/v1/streams/{STREAM}"
            self.deleted += 1
            return refusal("204 No Content")
        if asked.path == f"/v1/streams/{STREAM}/ack":
            self.acked.append(asked.body)
            return refusal("204 No Content")
        after = 0
        if asked.method == "GET":
            path, _, cursor = asked.path.partition("?after=1.")
            after = int(cursor)
            assert path == f"/v1/streams/{STREAM}"
            assert asked.headers["last-event-id"] == f"{STREAM}.1.{after}"
            assert asked.headers["authorization"] == "Bearer key"
            self.afters.append(after)
        else:
            assert asked.headers["x-headway-resumable"] == "1"
        part = self._connections.pop(0) if self._connections else Part(len(self._events))
        if isinstance(part, Reply):
            return part
        events = self._events[max(0, after - part.num_again) : after + part.num_events]
        sent = [(10.0 * place, event) for place, event in enumerate(events, 1)]
        return Reply(sent=sent, ending="complete" if events and events[-1] == self._events[-1] else "closed")


def call(
    folder: Path, server: Server, **rules: object
) -> tuple[Answer | CallError, str, float, ScriptedEndpoint]:
    """Return what one call came to, its text, how many milliseconds it took, and what the endpoint saw."""

    async def main(clock: VirtualLoop) -> tuple[Answer | CallError, str, float, ScriptedEndpoint]:
        async with world(clock, folder, e=server, other=lambda *_: good("X")) as w:
            endpoints = [
                Endpoint(url=f"http://{name}", model="m", name=name, api_key="key", resumable=True)
                for name in ("e", "other")
            ]
            settings: dict[str, object] = {"http": w.http, "clock": clock, "max_retries": 5, **rules}
            client = Client(endpoints, **settings)  # type: ignore[arg-type]
            start = clock.now
            async with client.stream([{"role": "user", "content": "hi"}]) as stream:
                try:
                    ended: Answer | CallError = await stream.collect()
                except CallError as error:
                    ended = error
            took_ms = (clock.now - start) / 1e6
            await client.aclose()
            return ended, stream.text, took_ms, w.endpoints["e"]

    return run_virtually(main)


def test_a_cut_stream_goes_on_at_once(tmp_path: Path) -> None:
    server = Server([Part(5)])
    ended, text, took_ms, _ = call(tmp_path, server)
    assert isinstance(ended, Answer)
    assert (ended.text, text, ended.num_resumes) == (WORDS, WORDS, 1)
    assert server.afters == [5]
    assert took_ms == pytest.approx(10 * len(EVENTS), abs=5)
    assert server.deleted == 0


def test_a_second_drop_before_any_event_keeps_the_cursor(tmp_path: Path) -> None:
    server = Server([Part(5), Part(0), CLOSED, refusal("503 Busy")])
    ended, _, took_ms, _ = call(tmp_path, server)
    assert isinstance(ended, Answer)
    assert ended.text == WORDS
    assert server.afters == [5, 5, 5, 5]
    assert took_ms > 75 + 225 + 675


def test_resumes_that_bring_nothing_spend_the_budget(tmp_path: Path) -> None:
    server = Server([Part(5), *[Part(0)] * 20])
    ended, text, _, _ = call(tmp_path, server, max_retries=3)
    assert type(ended) is AnswerCut
    assert ended.text == text == WORDS[:5]
    assert server.afters == [5] * 3


def test_resumes_that_bring_something_do_not(tmp_path: Path) -> None:
    server = Server([Part(1)] * (len(EVENTS) - 1))
    ended, _, _, _ = call(tmp_path, server, max_retries=1)
    assert isinstance(ended, Answer)
    assert (ended.text, ended.num_resumes) == (WORDS, len(EVENTS) - 1)


@pytest.mark.parametrize(
    ("status", "code"), [("410 Gone", "resync_required"), ("404 Not Found", "stream_not_found")]
)
def test_a_stream_that_is_gone_is_an_error_after_text_and_never_a_splice(
    tmp_path: Path, status: str, code: str
) -> None:
    body = b'{"error": {"message": "It is gone.", "code": "%b"}}' % code.encode()
    gone = Reply(head=f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode(), sent=[(0, body)])
    ended, text, _, _ = call(tmp_path, Server([Part(5), gone]), last_resort=CannedAnswer())
    assert type(ended) is AnswerCut
    assert (ended.code, ended.message, text) == (code, "It is gone.", WORDS[:5])


def test_a_server_that_has_nothing_left_is_not_asked_again(tmp_path: Path) -> None:
    server = Server([Part(5), refusal("204 No Content")])
    ended, text, _, _ = call(tmp_path, server)
    assert type(ended) is AnswerCut
    assert (text, server.afters) == (WORDS[:5], [5])


def test_an_error_that_ends_the_stream_is_not_resumed(tmp_path: Path) -> None:
    error = numbered(f"{STREAM}.1.3", b'{"error": {"message": "It broke.", "code": "engine_died"}}', "error")
    server = Server([Reply(sent=[(10, EVENTS[0]), (20, EVENTS[1]), (30, error)])])
    ended, _, _, _ = call(tmp_path, server)
    assert type(ended) is Refused
    assert (ended.code, ended.text, server.afters) == ("engine_died", "Th", [])


def test_a_stream_cut_before_its_first_text_goes_on_too(tmp_path: Path) -> None:
    server = Server([Part(1)], [chat(role="assistant", content=""), *PIECES])
    ended, _, _, _ = call(tmp_path, server)
    assert isinstance(ended, Answer)
    assert (ended.text, ended.endpoint) == (WORDS, "e")


def test_a_gap_is_asked_for_again(tmp_path: Path) -> None:
    server = Server([Reply(sent=[(10, EVENTS[0]), (20, EVENTS[2])])])
    ended, _, _, _ = call(tmp_path, server)
    assert isinstance(ended, Answer)
    assert ended.text == WORDS
    assert server.afters == [1]


def test_silence_is_a_cut(tmp_path: Path) -> None:
    server = Server([Reply(sent=[(10, EVENTS[0])], ending="silent")])
    ended, _, took_ms, _ = call(tmp_path, server, deadlines=Deadlines(idle_s=2))
    assert isinstance(ended, Answer)
    assert ended.text == WORDS
    assert took_ms == pytest.approx(10 + 2000 + 10 * (len(EVENTS) - 1), abs=20)


def test_a_stream_that_is_left_is_deleted(tmp_path: Path) -> None:
    server = Server([Reply(sent=[(10, EVENTS[0])], ending="silent")])
    ended, text, _, _ = call(tmp_path, server, deadlines=Deadlines(total_s=1))
    assert isinstance(ended, CallError)
    assert (text, server.deleted) == ("T", 1)


def hundreds(count: int, every_ms: float) -> list[tuple[float, bytes]]:
    """So many times a hundred events of a letter each, one after another."""

    def event(seq: int) -> bytes:
        return numbered(f"{STREAM}.1.{seq}", b'{"choices": [{"delta": {"content": "a"}}]}')

    return [
        (every_ms * place, b"".join(event(seq) for seq in range(place * 100 + 1, place * 100 + 101)))
        for place in range(count)
    ]


def test_what_was_read_is_acknowledged_now_and_then(tmp_path: Path) -> None:
    parts = hundreds(25, every_ms=10.0)
    tail = b"".join(number([chat("stop"), DONE], 2501))
    server = Server([Reply(sent=[*parts, (300.0, tail)])])
    ended, text, _, _ = call(tmp_path, server)
    assert isinstance(ended, Answer)
    assert len(text) == 2500
    assert server.acked == [b'{"seq":1100,"epoch":1}', b'{"seq":2200,"epoch":1}']


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.builds(Part, num_events=st.integers(0, 12), num_again=st.integers(0, 4)) | st.just(CLOSED),
        max_size=12,
    ),
    st.integers(0, 4),
)
def test_any_cuts_give_the_whole_text_or_a_prefix_and_one_error(
    tmp_path_factory: pytest.TempPathFactory, connections: list[Part | Reply], max_retries: int
) -> None:
    folder = tmp_path_factory.mktemp("r")
    ended, text, _, _ = call(folder, Server(connections), max_retries=max_retries)
    if isinstance(ended, Answer):
        assert (ended.text, ended.endpoint) in ((WORDS, "e"), ("XXX", "other"))
    else:
        assert type(ended) is AnswerCut
        assert text
        assert WORDS.startswith(text)


def test_what_was_read_is_acknowledged_by_its_bytes_too(tmp_path: Path) -> None:
    padding = "x" * 60_000  # log-probabilities of a step, for one

    def event(seq: int) -> bytes:
        return numbered(
            f"{STREAM}.1.{seq}",
            b'{"choices": [{"delta": {"content": "a"}, "logprobs": "%b"}]}' % padding.encode(),
        )

    tail = b"".join(number([chat("stop"), DONE], 41))
    sent = [(10.0 * seq, event(seq)) for seq in range(1, 41)]
    server = Server([Reply(sent=[*sent, (500.0, tail)])])
    ended, _, _, _ = call(tmp_path, server)
    assert isinstance(ended, Answer)
    acked = [json.loads(body)["seq"] for body in server.acked]
    assert len(acked) >= 3
    assert all(later - earlier <= 10 for earlier, later in zip([0, *acked], acked, strict=False))


def test_a_server_that_does_not_answer_acknowledgements_is_told_again(tmp_path: Path) -> None:
    """And holds no connection for ever."""

    class Deaf(Server):
        def __call__(self, number: int, asked: Asked) -> Reply:
            reply = super().__call__(number, asked)
            return Reply(head=b"", ending="silent") if asked.path.endswith("/ack") else reply

    parts = hundreds(30, every_ms=1000.0)
    tail = b"".join(number([chat("stop"), DONE], 3001))
    server = Deaf([Reply(sent=[*parts, (30_000.0, tail)])])
    ended, text, _, endpoint = call(tmp_path, server)
    assert isinstance(ended, Answer)
    assert len(text) == 3000
    assert len(server.acked) == 2
    assert endpoint.hung_up_ms[:1] == [20_000.0]


def test_json_in_the_middle_of_a_stream_is_no_answer(tmp_path: Path) -> None:
    server = Server([Part(5), whole("portal")])
    ended, text, _, _ = call(tmp_path, server)
    assert isinstance(ended, Answer)
    assert (ended.text, text) == (WORDS, WORDS)
