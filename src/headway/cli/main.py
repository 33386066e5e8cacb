"""Entry point of the `headway` command: parses, runs one subcommand, turns errors into one line and an exit code.

Exit codes: 0 done, 1 a bug of ours (with a traceback), 2 the user can mend it (one line on stderr), 128 + N signal N
(130 Ctrl-C). Parsing imports little, and of the commands the one that is named; each imports what it
runs when it runs, so that `--help` is quick.
"""

import argparse
import errno
import os
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from headway import __version__
from headway.core.errors import HeadwayError

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141

_FULL = (errno.ENOSPC, errno.EDQUOT)
"""A full disk, which stdout may lie on, is the user's to mend."""

_SUBCOMMANDS = (
    "serve",
    "chat",
    "complete",
    "pull",
    "models",
    "inspect",
    "perf",
    "bench",
    "bench_compare",
    "bench_diff",
    "bench_trace",
    "simulate",
    "simulate_pareto",
    "calibrate",
    "token",
)
"""Modules of this package, in the order of `--help`; the first word of a command is its module's name, up to a `_`."""

if TYPE_CHECKING:  # generic for type checkers only
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # argparse names it no other way


class _CommandParser(argparse.ArgumentParser):
    """A subcommand's parser, which refuses unknown options itself: argparse has the whole command do it, with its usage."""

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]  # as argparse's
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, unknown


class _WholeParser(argparse.ArgumentParser):
    """The whole command's parser, in which a command may have a name of two words beside one of the first word alone.

    argparse nests no such commands: `bench compare A B` beside `bench URL`, where URL may be anything.
    """

    commands: Collection[str] = ()

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]  # as argparse's
        words = list(sys.argv[1:] if args is None else args)
        if (name := " ".join(words[:2])) in self.commands:
            words[:2] = [name]
        return super().parse_known_args(words, namespace)


def build_parser(word: str | None = None) -> argparse.ArgumentParser:
    """Build the parser of the whole command; each subcommand adds its own, under a name of one word or two.

    `word`: the first one of the command line, if it is known: where it names commands, only those are imported.
    """
    parser = _WholeParser(
        prog="headway",
        description="Latency-first LLM serving for self-hosted coding assistants.",
        epilog="Start with `headway serve smollm2`; `headway COMMAND --help` explains each command.",
    )
    parser.add_argument("--version", action="version", version=f"headway {__version__}")
    subparsers = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=_CommandParser
    )
    named = [name for name in _SUBCOMMANDS if word is not None and name.split("_")[0] == word]
    for name in named or _SUBCOMMANDS:
        import_module(f"headway.cli.{name}").add_parser(subparsers)
    parser.commands = subparsers.choices
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    _open_standard_streams()
    words = sys.argv[1:] if argv is None else argv
    args = build_parser(words[0] if words else None).parse_args(argv)
    try:
        code: int = args.run(args)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where what keeps it from being written is still ours to tell
    except HeadwayError as error:
        print(f"headway: {_printable(error.message)}", file=sys.stderr)
        return EXIT_USAGE
    except BrokenPipeError:  # stdout's reader has seen enough, as in `headway models | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return EXIT_PIPE
    except OSError as error:
        if error.errno not in _FULL:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # takes what stdout still holds
        print(f"headway: Nothing more can be written ({error.strerror}): make room.", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return code


def _printable(message: str) -> str:
    """Escape what would end the line or control the terminal: messages quote names, files and other packages' errors."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)


def _open_standard_streams() -> None:
    """Put /dev/null where a standard stream is closed: its number would go to the next socket, and prints with it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


if __name__ == "__main__":
    sys.exit(main())
