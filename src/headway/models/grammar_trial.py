"""Tries a grammar in a process of its own before the engine compiles it, because some take minutes and gigabytes.

A regular expression that must match sixty others at once, or twenty numbers that are multiples of large primes, keep the
package busy for longer than anybody waits, and nothing can stop it: it is native code on a thread. So each grammar is first
compiled here, by a process that the kernel ends when it exceeds `MAX_COMPILE_CPU_S`, `MAX_MEMORY_BYTES` or its stack: rules
that lead to rules ten thousand deep end whoever compiles them. What passes is compiled again where it is needed, at a
cost that is known to be small. GBNF is turned into Lark here and only here, in Python that would hold up the engine.

The process has a vocabulary of single bytes and control tokens only: it starts in a tenth of a second and holds 36 MB.
It ends with its owner: its input ends then. `python -m headway.models.grammar_trial` is started by `GrammarTrial` alone.
"""

import resource
import select
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from headway.core.errors import InvalidRequest
from headway.core.request import Grammar
from headway.models.grammar import GrammarVocabulary, TokenTable, as_compiled

MAX_COMPILE_CPU_S: Final = 1
"""Ordinary schemas take 0.3 to 15 ms, one of 2,000 properties 0.3 s (docs/log.md)."""
MAX_MEMORY_BYTES: Final = 32 * 1024 * 1024
"""What the process may grow by, beyond the heap of 64 MiB that the C library gives its thread: ordinary grammars take less
than 1 MB, 2,000 properties 23 MB. As much may stay with the request while it runs."""
STACK_BYTES: Final = 2 * 1024 * 1024
"""A quarter of what the engine's thread has, by Linux's default."""
MAX_WAIT_S: Final = 60.0
"""When the processor is so busy that the limit above does not end it."""


class Control(msgspec.Struct, frozen=True):
    """What the process must know of a vocabulary: its size, its control tokens by id, those that end an answer."""

    vocab_size: int
    names: Mapping[int, str]
    end_ids: Sequence[int]


class Verdict(msgspec.Struct, frozen=True):
    """What was compiled, or what is wrong with it."""

    grammar: Grammar | None
    message: str = ""


class GrammarTrial:
    """One process that tries grammars, started when it is first needed and again after it was ended. For one thread."""

    def __init__(self, tokens: TokenTable, vocab_size: int) -> None:
        ids = range(min(tokens.vocab_size, vocab_size))
        names = {i: tokens.token_bytes(i).decode(errors="replace") for i in ids if tokens.is_special(i)}
        self._control = Control(vocab_size, names, tuple(tokens.eos_ids))
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], object] | None = None

    def start(self) -> None:
        """Start the process without waiting for it, unless it runs. Raises OSError when that is not possible."""
        if self._process is not None:
            if self._process.poll() is None:
                return
            self.close()
        self._process = subprocess.Popen(
            (sys.executable, "-P", "-m", "headway.models.grammar_trial"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # what it says at its end is the caller's doing, and no news
            start_new_session=True,
        )
        self._end = weakref.finalize(self, _end, self._process)
        self._write(self._control)

    def check(self, grammar: Grammar) -> Grammar:
        """Return the grammar that compiles, in the form to compile; raises InvalidRequest, naming its field."""
        self.start()
        self._write(grammar)
        verdict = self._read()
        if verdict is None:
            self.close()
            raise InvalidRequest(
                f"`{grammar.param}` takes more than {MAX_COMPILE_CPU_S} s or too much memory to compile, or is nested too"
                " deeply; simplify it.",
                param=grammar.param,
            )
        if verdict.grammar is None:
            raise InvalidRequest(verdict.message, param=grammar.param)
        return verdict.grammar

    def close(self) -> None:
        """End the process, if there is one."""
        if self._end is not None:
            self._end()
        self._process = self._end = None

    def _write(self, message: msgspec.Struct) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it was ended: the answer will be missing
            self._process.stdin.write(msgspec.json.encode(message) + b"\n")
            self._process.stdin.flush()

    def _read(self) -> Verdict | None:
        assert self._process is not None
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], MAX_WAIT_S)[0]:
            return None
        line = self._process.stdout.readline()
        return msgspec.json.decode(line, type=Verdict) if line.endswith(b"\n") else None


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()


class ByteTable:
    """Single bytes and control tokens, at ids where a vocabulary of the given size has room."""

    def __init__(self, control: Control) -> None:
        self.vocab_size = control.vocab_size
        self.eos_ids = control.end_ids
        self._tokens = {i: name.encode() for i, name in control.names.items()}
        self._special = frozenset(self._tokens)
        free = (i for i in range(control.vocab_size) if i not in self._special)
        self._ids = dict(zip(range(256), free, strict=False))
        self._tokens |= {token_id: bytes([byte]) for byte, token_id in self._ids.items()}

    def token_bytes(self, token_id: int) -> bytes:
        """Return the token's bytes; most ids have none."""
        return self._tokens.get(token_id, b"")

    def is_special(self, token_id: int) -> bool:
        """Return whether it is a control token."""
        return token_id in self._special

    def encode(self, text: str, *, parse_special: bool, add_bos: bool) -> Sequence[int]:  # noqa: ARG002 — the seam's
        """Return one id for each byte."""
        return [self._ids[byte] for byte in text.encode()]


def run(requests: BinaryIO, verdicts: BinaryIO) -> None:
    """Answer each line with one, until there are no more."""
    control = msgspec.json.decode(requests.readline(), type=Control)
    vocabulary = GrammarVocabulary(ByteTable(control), control.vocab_size)
    vocabulary.compile(
        Grammar(kind="json_schema", source="{}"), control.end_ids
    )  # maps what any grammar needs
    _limit_memory()
    for line in requests:
        _limit_cpu()
        try:
            grammar = as_compiled(msgspec.json.decode(line, type=Grammar))
            vocabulary.compile(grammar, control.end_ids)
            verdict = Verdict(grammar)
        except InvalidRequest as error:
            verdict = Verdict(None, error.message)
        verdicts.write(msgspec.json.encode(verdict) + b"\n")
        verdicts.flush()


def _limit_memory() -> None:
    """Let allocations fail, which ends this process, when it has grown by `MAX_MEMORY_BYTES`."""
    num_pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = num_pages * resource.getpagesize() + MAX_MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_cpu() -> None:
    """Let the kernel end this process when it has used `MAX_COMPILE_CPU_S` more (rounded up to a second)."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    end_s = int(usage.ru_utime + usage.ru_stime) + MAX_COMPILE_CPU_S + 1
    resource.setrlimit(resource.RLIMIT_CPU, (end_s, resource.getrlimit(resource.RLIMIT_CPU)[1]))


if __name__ == "__main__":
    threading.stack_size(STACK_BYTES)
    threading.Thread(target=run, args=(sys.stdin.buffer, sys.stdout.buffer)).start()
