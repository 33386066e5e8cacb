"""`headway complete`: what belongs at an editor's cursor, within its patience.

It starts no server and imports little, not even `cli/options.py`: the time from the key to the request is the editor's to
wait.
"""

import argparse
import io
import os
import sys
from typing import TYPE_CHECKING, Final

from headway.core.errors import ConfigError

if TYPE_CHECKING:
    from headway.cli.complete_outcome import Outcome
    from headway.cli.complete_request import EditorRequest
    from headway.cli.main import Subparsers
    from headway.client import Client, Endpoint

_BUDGET_MS: Final = 800.0
"""Row C3: editors fall back after so long."""
_MAX_BUDGET_MS: Final = 3_600_000
_MAX_TOKENS: Final = 64
"""A few lines: what an editor shows, and what a small model writes within the budget."""


def add_parser(subparsers: "Subparsers") -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "complete",
        help="complete code at an editor's cursor",
        description="Complete code at an editor's cursor: JSON on standard input, the completion on standard output.",
    )
    ways = parser.add_mutually_exclusive_group(required=True)
    ways.add_argument(
        "--stdin", action="store_true", help="read one request from standard input, answer it, end"
    )
    ways.add_argument(
        "--json-lines",
        action="store_true",
        help="answer a line of JSON for every line of JSON; a request cancels the one before it",
    )
    parser.add_argument(
        "--json", action="store_true", help="with --stdin: print an object instead of the text"
    )
    parser.add_argument(
        "--url",
        default="http://127.0.0.1:8000",
        metavar="URL",
        help="an OpenAI-compatible server (default: %(default)s)",
    )
    parser.add_argument(
        "--model", default="", metavar="NAME", help="the model there (default: the one it serves)"
    )
    parser.add_argument(
        "--api-key-env", metavar="VARIABLE", help="environment variable that holds the server's API key"
    )
    parser.add_argument(
        "--fallback",
        action="append",
        default=[],
        metavar="URL[,model=NAME][,api-key-env=VARIABLE]",
        help="whom to ask when the server fails or is late; repeat it for a chain",
    )
    parser.add_argument(
        "--budget-ms",
        type=float,
        default=_BUDGET_MS,
        metavar="MS",
        help="when an answer is of no use any more (default: %(default).0f)",
    )
    parser.add_argument(
        "--max-tokens",
        type=int,
        default=_MAX_TOKENS,
        metavar="N",
        help="longest completion (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Answer one request, or an editor's; raises HeadwayError for what can never be asked."""
    if args.json and args.json_lines:
        raise ConfigError("--json belongs to --stdin; --json-lines prints objects anyway.")
    if not 0 < args.budget_ms <= _MAX_BUDGET_MS or args.max_tokens < 1:
        raise ConfigError(f"--budget-ms is above 0 and at most {_MAX_BUDGET_MS}, --max-tokens at least 1.")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(
            encoding="utf-8"
        )  # as JSON has it; an editor's locale says nothing of its files
    endpoints = [_endpoint(args.url, args.model, args.api_key_env), *map(_fallback, args.fallback)]
    if args.json_lines:
        import asyncio

        asyncio.run(_serve(endpoints, args))
        return 0
    return _answer_one(endpoints, args)


def _answer_one(endpoints: "list[Endpoint]", args: argparse.Namespace) -> int:
    import asyncio

    import msgspec

    from headway.cli.complete_outcome import exit_code
    from headway.cli.complete_request import parse_request
    from headway.client import Client
    from headway.client.plain_http import PlainHttp, is_enough

    data = b"" if sys.stdin is None else sys.stdin.buffer.read()  # None: it was closed
    if not data.strip():
        raise ConfigError("--stdin reads a request, one JSON object, and nothing came.")
    request = parse_request(data)

    http = PlainHttp() if is_enough(endpoints, os.environ) else None

    async def ask() -> "Outcome":
        async with Client(endpoints, http=http) as client:
            return await _outcome(client, request, args)

    outcome = asyncio.run(ask())
    if args.json:
        print(msgspec.json.encode(outcome).decode())
    elif outcome.message is None:
        print(outcome.text, end="")
    else:
        # A server's words: nothing in them may end the line or control the terminal.
        words = "".join(
            c if c.isprintable() else c.encode("unicode_escape").decode() for c in outcome.message
        )
        print(f"headway: {words}", file=sys.stderr)
    return int(exit_code(outcome))


async def _serve(endpoints: "list[Endpoint]", args: argparse.Namespace) -> None:
    import msgspec

    from headway.cli.complete_lines import serve_lines, stdin_lines
    from headway.client import Client

    def tell(outcome: "Outcome") -> None:
        print(msgspec.json.encode(outcome).decode(), flush=True)

    async with Client(endpoints) as client:
        await serve_lines(stdin_lines(), lambda request: _outcome(client, request, args), tell)


async def _outcome(client: "Client", request: "EditorRequest", args: argparse.Namespace) -> "Outcome":
    from headway.cli.complete_outcome import answered, failed
    from headway.client import CallError, Deadlines

    budget_s = (request.budget_ms or args.budget_ms) / 1000
    fields: dict[str, object] = {"max_tokens": request.max_tokens or args.max_tokens, "temperature": 0}
    if request.stop:
        fields["stop"] = request.stop
    deadlines = Deadlines(first_token_s=budget_s, total_s=budget_s)
    try:
        return answered(request, await client.fill_in(request.context, deadlines=deadlines, **fields))
    except CallError as error:
        return failed(request, error)


def _endpoint(url: str, model: str, api_key_env: str | None) -> "Endpoint":
    from headway.client import Endpoint

    key = None
    if api_key_env is not None:
        from headway.cli.options import api_key

        key = api_key(api_key_env)
    return Endpoint(url=url, model=model, api_key=key)


def _fallback(text: str) -> "Endpoint":
    url, *settings = text.split(",")
    given: dict[str, str] = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in ("model", "api-key-env") or not value or name in given:
            raise ConfigError(f"--fallback is URL,model=NAME,api-key-env=VARIABLE, not {text!r}.")
        given[name] = value
    return _endpoint(url, given.get("model", ""), given.get("api-key-env"))
