"""The conversation with a driver: a line of JSON in, a line of JSON out, until the input ends.

What the driver prints besides (libraries print to stdout, too) goes to stderr.
"""

import json
import os
import sys
from typing import Any, Protocol


class Peer(Protocol):
    """A loaded model."""

    def describe(self) -> dict[str, Any]:
        """Return versions and what was set."""

    def prefill(self, tokens: int) -> float:
        """Compute a prompt of `tokens` random tokens with nothing cached; return seconds."""

    def decode(self, batch: int, context: int, tokens: int) -> float:
        """Decode `tokens` for each of `batch` sequences that hold `context` tokens; return seconds."""


def claim_stdout() -> int:
    """Return a descriptor of the stdout that was; from now on whatever is printed goes to stderr."""
    answers = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr  # which has no buffer to be emptied at the end, after an error's last words
    return answers


def serve(peer: Peer, answers: int) -> None:
    """Describe the peer, then answer each command with `{"seconds": ...}`."""
    with os.fdopen(answers, "w") as out:

        def say(answer: dict[str, Any]) -> None:
            print(json.dumps(answer), file=out, flush=True)

        say(peer.describe())
        for line in sys.stdin:
            match json.loads(line):
                case {"op": "prefill", "tokens": tokens}:
                    say({"seconds": peer.prefill(tokens)})
                case {"op": "decode", "batch": batch, "context": context, "tokens": tokens}:
                    say({"seconds": peer.decode(batch, context, tokens)})
                case command:
                    raise ValueError(f"no such command: {command}")
