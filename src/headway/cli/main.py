"""Entry point of the `headway` command: parses, runs one subcommand, turns errors into one line and an exit code.

Exit codes: 0 done, 1 a bug of ours (with a traceback), 2 the user can mend it (one line on stderr), 130 Ctrl-C.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headway import __version__
from headway.cli import chat, models, pull, serve
from headway.core.errors import HeadwayError

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

_SUBCOMMANDS = (serve, chat, pull, models)

if TYPE_CHECKING:  # generic for type checkers only
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # argparse names it no other way


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the whole command; each subcommand adds its own."""
    parser = argparse.ArgumentParser(
        prog="headway",
        description="Latency-first LLM serving for self-hosted coding assistants.",
        epilog="Start with `headway serve smollm2`; `headway COMMAND --help` explains each command.",
    )
    parser.add_argument("--version", action="version", version=f"headway {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in _SUBCOMMANDS:
        module.add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    args = build_parser().parse_args(argv)
    try:
        code: int = args.run(args)
    except HeadwayError as error:
        print(f"headway: {error.message}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return code


if __name__ == "__main__":
    sys.exit(main())
