"""`headway chat`: talk to a model in a terminal, on a running server or on one started for this conversation.

A server of our own listens on a Unix socket in a private folder, so nobody else can reach it; from there on both cases
are the same plain HTTP client.
"""

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx2

from headway.cli.options import add_engine_options, add_log_options, engine_config, positive
from headway.cli.private_server import private_server
from headway.core.errors import ConfigError, HeadwayError, Unavailable
from headway.models.fetch import resolve_model
from headway.models.sources import served_name
from headway.obs.logs import configure

if TYPE_CHECKING:
    from headway.cli.main import Subparsers

_CONNECT_TIMEOUT_S = 5.0
"""A server that takes longer to accept a connection is not there; answers themselves may take any time."""

Message = dict[str, str]


def add_parser(subparsers: "Subparsers") -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "chat",
        help="talk to a model in the terminal",
        description="Talk to a model in the terminal. Ctrl-C stops an answer, Ctrl-D ends the conversation.",
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help="a known name or the path of a .gguf file (default: smollm2); with --url the model's name there",
    )
    parser.add_argument("--url", help="talk to this server, such as http://127.0.0.1:8000, and start none")
    parser.add_argument(
        "--api-key-env", metavar="VARIABLE", help="environment variable that holds the server's API key"
    )
    parser.add_argument("--prompt", help="answer this one message and end; - reads it from standard input")
    parser.add_argument("--system", metavar="TEXT", help="system message that begins the conversation")
    parser.add_argument("--max-tokens", type=positive, metavar="N", help="longest answer")
    parser.add_argument("--temperature", type=float, metavar="T", help="0 = always the likeliest token")
    parser.add_argument("--seed", type=int, metavar="N", help="the same seed gives the same answer")
    add_engine_options(parser)
    add_log_options(parser)
    parser.set_defaults(run=run, log_level="warning")


def run(args: argparse.Namespace) -> int:
    """Hold the conversation; raises HeadwayError when the server cannot be reached or started."""
    configure(args.log_level.upper(), args.log_json)
    with _client(args) as client:
        model = args.model if args.url and args.model else _first_model(client)
        conversation = Conversation(client, model, args)
        if args.prompt is not None:
            conversation.ask(sys.stdin.read() if args.prompt == "-" else args.prompt)
            print()
        else:
            _talk(conversation, model)
    return 0


class Conversation:
    """The messages so far. An answer that was stopped stays, as far as it came."""

    def __init__(self, client: httpx2.Client, model: str, args: argparse.Namespace) -> None:
        self._client = client
        self._settings = {
            "model": model,
            "stream": True,
            "max_tokens": args.max_tokens,
            "temperature": args.temperature,
            "seed": args.seed,
        }
        self._messages: list[Message] = []
        if args.system is not None:
            self._messages.append({"role": "system", "content": args.system})

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
        body = {**self._settings, "messages": messages}
        with _reachable(), self._client.stream("POST", "/v1/chat/completions", json=body) as response:
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


def _talk(conversation: Conversation, model: str) -> None:
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


def _first_model(client: httpx2.Client) -> str:
    with _reachable():
        response = client.get("/v1/models")
        if response.status_code != httpx2.codes.OK:
            raise Unavailable(_error_message(response))
        models: list[dict[str, Any]] = response.json()["data"]
    if not models:
        raise Unavailable("The server offers no model.")
    return str(models[0]["id"])


@contextlib.contextmanager
def _reachable() -> Iterator[None]:
    """Turn what can go wrong between us and a server into one sentence."""
    try:
        yield
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise Unavailable(f"The server cannot be reached: {error}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise Unavailable(f"The server answered something that is not OpenAI's API ({error!r}).") from error


def _error_message(response: httpx2.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"The server answered with status {response.status_code}."


@contextlib.contextmanager
def _client(args: argparse.Namespace) -> Iterator[httpx2.Client]:
    timeout = httpx2.Timeout(None, connect=_CONNECT_TIMEOUT_S)
    if args.url:
        headers = {}
        if args.api_key_env:
            key = os.environ.get(args.api_key_env)
            if not key:
                raise ConfigError(f"The environment variable {args.api_key_env} is not set.")
            headers["Authorization"] = f"Bearer {key}"
        with httpx2.Client(
            base_url=args.url.removesuffix("/").removesuffix("/v1"), headers=headers, timeout=timeout
        ) as client:
            yield client
        return
    name = args.model or "smollm2"
    config = engine_config(args, served_name(name), str(resolve_model(name)))
    with private_server(config, args.log_level.upper(), args.log_json) as path:
        transport = httpx2.HTTPTransport(uds=str(path))
        with httpx2.Client(base_url="http://headway", transport=transport, timeout=timeout) as client:
            yield client
