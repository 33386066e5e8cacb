"""Everything an endpoint may do to a caller, by name. Its word names who speaks, so that a splice of two would show."""

from collections.abc import Callable
from typing import Final

from support.scripted_endpoint import Asked, Script
from support.scripted_server import Reply, refusal
from support.scripted_stream import DONE, chat, event

HEAD: Final = Reply().head
END: Final = chat("stop") + DONE


def say(word: str) -> bytes:
    return chat(content=word)


def always(reply: Reply) -> Script:
    def script(number: int, asked: Asked) -> Reply:
        del number, asked
        return reply

    return script


def good(word: str, ttft_ms: float = 50, num_words: int = 3) -> Reply:
    words = [(ttft_ms + 10 * i, say(word)) for i in range(num_words)]
    return Reply(sent=[*words, (ttft_ms + 10 * num_words, END)])


def error(**fields: object) -> bytes:
    return event({"error": {"message": "it broke", **fields}})


def whole(word: str) -> Reply:
    body = f'{{"choices": [{{"message": {{"content": "{word * 3}"}}, "finish_reason": "stop"}}]}}'.encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    return Reply(head=head, sent=[(50, body)])


ANSWERS: Final[dict[str, Callable[[str], Reply]]] = {
    "good": good,
    "slow": lambda word: good(word, ttft_ms=3000),
    "whole": whole,
    "limited": lambda _: refusal("429 Too Many Requests", "Retry-After: 7\r\n"),
    "busy": lambda _: refusal("503 Service Unavailable", "Retry-After: 7\r\n"),
    "broken": lambda _: refusal("500 Internal Server Error", "x-should-retry: false\r\n"),
    "wrong": lambda _: refusal("400 Bad Request"),
    "unknown": lambda _: refusal("404 Not Found"),
    "hangs": lambda _: Reply(head=b"", ending="silent"),
    "stalls": lambda _: Reply(ending="silent"),
    "closes": lambda _: Reply(head=b"", ending="closed"),
    "dies-early": lambda _: Reply(sent=[(50, b": ping\n")], ending="closed"),
    "errs-early": lambda _: Reply(sent=[(50, error(type="overloaded_error"))]),
    "garbage": lambda _: Reply(sent=[(50, b"data: {\n\n")]),
    "no-http": lambda _: Reply(head=b"220 mail.example ESMTP\r\n", ending="closed"),
    "dies": lambda word: Reply(sent=[(50, say(word))], ending="closed"),
    "errs": lambda word: Reply(sent=[(50, say(word)), (60, error(code="engine_died"))]),
    "no-done": lambda word: Reply(sent=[(50, say(word)), (60, chat("stop"))]),
    "goes-silent": lambda word: Reply(sent=[(50, say(word))], ending="silent"),
}
"""By what it does. `refuses-connections` is an endpoint that is not there."""
