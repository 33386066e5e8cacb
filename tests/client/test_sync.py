"""The blocking client: over real sockets, since its loop is in another thread."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from starlette.types import Receive, Scope, Send

from headway.client import (
    Client,
    CodeContext,
    Deadlines,
    Endpoint,
    Refused,
    SyncClient,
    Unreachable,
)
from support.endpoint_scripts import END, say
from support.live_server import live_server

MESSAGES = [{"role": "user", "content": "hi"}]


class App:
    """Answers `stay` words: with "stay" it never ends. `left`: when a client hung up."""

    def __init__(self) -> None:
        self.left = threading.Event()
        self.began = threading.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        body = (await receive())["body"]
        status = 429 if b"refuse" in body else 200
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(b"content-type", b"text/event-stream")],
            }
        )
        if status == 200:
            await send({"type": "http.response.body", "body": say("a"), "more_body": True})
            self.began.set()
            if b"stay" in body:
                while (await receive())["type"] != "http.disconnect":
                    pass
                self.left.set()
                return
            await send({"type": "http.response.body", "body": say("b") + END, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


@contextmanager
def served() -> Iterator[tuple[SyncClient, App]]:
    app = App()
    with live_server(app) as (host, port):
        endpoint = Endpoint(url=f"http://{host}:{port}", model="m")
        with SyncClient(Client([endpoint], deadlines=Deadlines(first_token_s=30), max_retries=0)) as client:
            yield client, app


def test_whole_answers_and_streams() -> None:
    with served() as (client, _):
        assert client.chat(MESSAGES).text == "ab"
        assert client.complete("hi").text == "ab"
        assert client.fill_in(CodeContext(prefix="x = ")).text == "ab"
        with client.stream(MESSAGES) as stream:
            assert [delta.text for delta in stream] == ["a", "b"]
            assert stream.answer.text == stream.text == "ab"
        with client.stream(prompt="hi") as stream:
            assert list(stream.texts()) == ["a", "b"]
        with client.stream(MESSAGES) as stream:
            assert stream.collect().text == "ab"


def test_errors_are_the_same() -> None:
    with served() as (client, _), pytest.raises(Refused) as raised:
        client.chat([{"role": "user", "content": "refuse"}])
    assert raised.value.status == 429


def test_leaving_a_stream_hangs_up() -> None:
    with served() as (client, app):
        with client.stream([{"role": "user", "content": "stay"}]) as stream:
            assert next(stream).text == "a"
        assert app.left.wait(30)


def test_ctrl_c_ends_a_call_and_hangs_up() -> None:
    with served() as (client, app):

        def press() -> None:
            app.began.wait(30)
            os.kill(os.getpid(), signal.SIGINT)

        presser = threading.Thread(target=press)
        presser.start()
        with pytest.raises(KeyboardInterrupt):
            client.chat([{"role": "user", "content": "stay"}])
        presser.join()
        assert app.left.wait(30)
        assert client.chat(MESSAGES).text == "ab"


def test_threads_share_one_client() -> None:
    with served() as (client, _):
        answers: list[str] = []
        threads = [
            threading.Thread(target=lambda: answers.append(client.chat(MESSAGES).text)) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == ["ab"] * 8


def test_closing_twice_and_a_server_that_is_not_there() -> None:
    client = SyncClient(Client([Endpoint(url="http://127.0.0.1:1", model="m")], max_retries=0))
    with pytest.raises(Unreachable):
        client.chat(MESSAGES)
    client.close()
    client.close()
