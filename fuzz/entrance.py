"""What the targets share: run one entrance for untrusted bytes under libFuzzer and hold it to what it may raise.

Each target says which exceptions are a refusal; anything else that comes out, a crash of the process, an input that takes
longer than scripts/fuzz allows, or more memory, is a finding. Needs `atheris`, which scripts/fuzz installs.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris  # type: ignore[import-untyped]  # only in scripts/fuzz's environment

from headway.core.errors import HeadwayError

SPARSE_BYTES = 4 * 1024 * 1024
"""What a file that is `extended` grows to: tensors of a header without data then lie inside it, and it takes no space."""


def scratch_folder() -> Path:
    """Return a new folder in memory for the files that a target writes; the system's own removes it at boot."""
    shared_memory = Path("/dev/shm")
    return Path(
        tempfile.mkdtemp(prefix="headway-fuzz-", dir=shared_memory if shared_memory.is_dir() else None)
    )


def write_file(path: Path, data: bytes, *, extended: bool) -> None:
    """Write `data` to `path`; an `extended` file has a hole behind it, up to `SPARSE_BYTES`."""
    with path.open("wb") as stream:
        stream.write(data)
        if extended:
            os.ftruncate(stream.fileno(), max(SPARSE_BYTES, len(data)))


def fuzz(
    one_input: Callable[[bytes], None],
    refusal: type[HeadwayError],
    *,
    one_line: bool = False,
    mutate: Callable[[bytes, int, int], bytes] | None = None,
) -> None:
    """Call `one_input` with bytes until libFuzzer's options in `sys.argv` say stop; `refusal` is all it may raise.

    Refusals are short, and `one_line` unless they quote other packages' errors as they are. `mutate` makes inputs from
    others (data, most bytes, seed) instead of libFuzzer.
    """

    def guarded(data: bytes) -> None:
        try:
            one_input(data)
        except refusal as error:
            _check(error.message, one_line)

    options = {} if mutate is None else {"custom_mutator": mutate}
    atheris.Setup(sys.argv, guarded, **options)
    atheris.Fuzz()


def _check(message: str, one_line: bool) -> None:
    assert len(message) < 2000, f"a refusal is a sentence: {message!r}"
    assert not one_line or message.isprintable(), (
        f"a refusal is one line without control characters: {message!r}"
    )
