"""A conversation over HTTP with any server that speaks OpenAI's API, and its terminal. It starts no server."""

import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2

from headway.core.errors import HeadwayError, Unavailable

Message = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is sent with every message; None = the server's default."""

    system: str | None
    max_tokens: int | None
    temperature: float | None
    seed: int | None


class Conversation:
    """The messages so far. An answer that was stopped stays, as far as it came."""

    def __init__(self, client: httpx2.Client, model: str, settings: Settings) -> None:
        self._client = client
        self._fields = {
            "model": model,
            "stream": True,
            "max_tokens": settings.max_tokens,
            "temperature": settings.temperature,
            "seed": settings.seed,
        }
        self._messages: list[Message] = []
        if settings.system is not None:
            self._messages.append({"role": "system", "content": settings.system})

    def ask(self, text: str) -> None:
        """Send one message and print the answer as it arrives; Ctrl-C stops it and raises KeyboardInterrupt."""
        asked: list[Message] = [*self._messages, {"role": "user", "content": text}]
        answer: list[str] = []
        try:
            for piece in self._stream(asked):
                answer.append(piece)
                print(piece, end="", flush=True)
        finally:
            if answer:
                self._messages = [*asked, {"role": "assistant", "content": "".join(answer)}]

    def _stream(self, messages: list[Message]) -> Iterator[str]:
        body = {**self._fields, "messages": messages}
        with (
            _reachable(self._client),
            self._client.stream("POST", "/v1/chat/completions", json=body) as response,
        ):
            if response.status_code != httpx2.codes.OK:
                response.read()
                raise Unavailable(_error_message(response))
            for line in response.iter_lines():
                if not line.startswith("data:") or line.endswith("[DONE]"):
                    continue
                event = json.loads(line.removeprefix("data:"))
                if "error" in event:
                    raise Unavailable(str(event["error"].get("message", event["error"])))
                for choice in event["choices"]:
                    if piece := choice["delta"].get("content"):
                        yield piece


def talk(conversation: Conversation, model: str) -> None:
    """Ask and answer in the terminal until Ctrl-D, or Ctrl-C at the prompt."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - line editing and history for input()
    print(f"Talking to {model}. Ctrl-C stops an answer, Ctrl-D ends the conversation.")
    while True:
        try:
            text = input("\n> ").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return
        if not text:
            continue
        try:
            conversation.ask(text)
            print()
        except KeyboardInterrupt:
            print(" [stopped]")
        except HeadwayError as error:
            print(f"headway: {error.message}", file=sys.stderr)


def first_model(client: httpx2.Client) -> str:
    """Return the name of the first model that the server offers; raises Unavailable."""
    with _reachable(client):
        response = client.get("/v1/models")
        if response.status_code != httpx2.codes.OK:
            raise Unavailable(_error_message(response))
        models: list[dict[str, Any]] = response.json()["data"]
    if not models:
        raise Unavailable("The server offers no model.")
    return str(models[0]["id"])


@contextlib.contextmanager
def _reachable(client: httpx2.Client) -> Iterator[None]:
    """Turn what can go wrong between us and a server into one sentence."""
    try:
        yield
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        why = str(error).rstrip(".") or type(error).__name__
        raise Unavailable(f"The server at {client.base_url} cannot be reached: {why}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise Unavailable(f"The server answered something that is not OpenAI's API ({error!r}).") from error


def _error_message(response: httpx2.Response) -> str:
    try:
        message = str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = f"The server answered with status {response.status_code}."
    if response.status_code == httpx2.codes.UNAUTHORIZED:
        message += " --api-key-env names the variable that holds a token."
    return message
