"""What the targets share: run an entrance for untrusted bytes under libFuzzer and hold it to what it may raise.

Each target says which exception is a refusal; anything else that comes out, a crash of the process, an input that takes
longer than scripts/fuzz allows, or more memory, is a finding. Needs `atheris`, which scripts/fuzz installs.
"""

import shlex
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris  # type: ignore[import-untyped]  # only in scripts/fuzz's environment

from headway.core.errors import HeadwayError


def scratch_folder() -> Path:
    """Return a new folder in memory for the files that a target writes; the system's own removes it at boot."""
    shared_memory = Path("/dev/shm")
    return Path(
        tempfile.mkdtemp(prefix="headway-fuzz-", dir=shared_memory if shared_memory.is_dir() else None)
    )


def fuzz(
    entrance: Callable[[bytes, Path], None],
    refusal: type[HeadwayError],
    *,
    one_line: bool = False,
    mutate: Callable[[bytes, int, int], bytes] | None = None,
) -> None:
    """Call `entrance` with bytes until libFuzzer's options in `sys.argv` say stop; `refusal` is all it may raise.

    Refusals are short, and `one_line` unless they quote other packages' errors as they are. `mutate` makes inputs from
    others (data, most bytes, seed) instead of libFuzzer.
    """
    folder = scratch_folder()

    def guarded(data: bytes) -> None:
        try:
            entrance(data, folder)
        except refusal as error:
            _check(error.message, one_line)

    options = {} if mutate is None else {"custom_mutator": mutate}
    command = shlex.join([sys.executable, sys.argv[0]])  # what libFuzzer starts again to merge corpora
    atheris.Setup([command, *sys.argv[1:]], guarded, **options)
    atheris.Fuzz()


def _check(message: str, one_line: bool) -> None:
    assert len(message) < 2000, f"a refusal is a sentence: {message!r}"
    assert not one_line or message.isprintable(), (
        f"a refusal is one line without control characters: {message!r}"
    )
