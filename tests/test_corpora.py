"""Replays what fuzzing has collected (scripts/fuzz, fuzz/keep.py): no input ends in anything but success or a refusal."""

import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.core.errors import HeadwayError, InvalidRequest, ModelFileError
from support.entrances import (
    parse_body,
    read_gguf_file,
    read_gguf_text,
    read_stream,
    read_tokenizer_folder,
    read_weights_folder,
)

CORPORA = Path(__file__).parent / "data" / "corpora"


@pytest.mark.parametrize(
    ("target", "entrance", "refusal"),
    [
        ("gguf", read_gguf_file, ModelFileError),
        ("json", parse_body, InvalidRequest),
        ("safetensors", read_weights_folder, ModelFileError),
        ("streams", read_stream, InvalidRequest),
        ("text", read_gguf_text, ModelFileError),
        ("tokenizer", read_tokenizer_folder, ModelFileError),
    ],
)
def test_no_input_of_a_corpus_does_harm(
    tmp_path: Path,
    target: str,
    entrance: Callable[[bytes, Path], None],
    refusal: type[HeadwayError],
) -> None:
    num_read = 0
    messages: list[str] = []
    with tarfile.open(CORPORA / f"{target}.tar.xz") as archive:
        for member in archive:
            stream = archive.extractfile(member)
            assert stream is not None
            data = stream.read()
            try:
                entrance(data, tmp_path)
            except refusal as error:
                messages.append(error.message)
            else:
                num_read += 1
    assert num_read >= 2
    assert len(messages) >= 5
    assert max(map(len, messages)) < 2000
