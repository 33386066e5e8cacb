"""The entrances for untrusted bytes, each as one function of bytes: what fuzzing (fuzz/) calls and its corpora replay.

An input begins with a byte or two that say what to make of the rest, so that mutations of it reach every way in. A function
returns, or raises the refusal that its docstring names; anything else is a defect.
"""

import contextlib
import os
import re
from pathlib import Path

import msgspec

from headway.core.errors import InvalidRequest
from headway.models.architectures import open_plan
from headway.models.safetensors import read_safetensors
from headway.models.summary import summarise
from headway.models.text_side import open_text
from headway.streams.ids import parse_after, parse_event_id
from headway.wire.chat_request import parse_chat
from headway.wire.completion_request import parse_completion
from headway.wire.embeddings import parse_embedding
from headway.wire.messages_request import parse_count_call, parse_message_call
from headway.wire.responses_request import parse_responses
from headway.wire.sse_reader import EventTooLarge, SseEvent, SseReader
from headway.wire.stream_messages import read_ack, read_from_client, read_from_server
from headway.wire.summary_request import parse_summary
from headway.wire.tokens import parse_detokenize, parse_tokenize

SPARSE_BYTES = 4 * 1024 * 1024
"""What an extended file grows to: tensors of a header without data then lie inside it, and it takes no space."""

_TEXT = "def f(x):\n\treturn x\u00e9 + 12345  # \U0001f600\r\n<|im_start|>"
_END = re.compile(rb"\[\s*[0-9]{1,9}\s*,\s*([0-9]{1,9})\s*\]")
_MAX_EVENT_BYTES = 64
"""Small, so that fuzzing meets the limit."""
_PARSERS = (
    parse_chat,
    parse_completion,
    parse_embedding,
    parse_tokenize,
    parse_detokenize,
    parse_message_call,
    parse_count_call,
    parse_responses,
    parse_summary,
)


def parse_body(data: bytes, folder: Path) -> None:  # noqa: ARG001  # as every entrance
    """A request's body; the first byte chooses the endpoint. Raises InvalidRequest."""
    _PARSERS[(data[0] if data else 0) % len(_PARSERS)](data[1:])


def read_stream(data: bytes, folder: Path) -> None:  # noqa: ARG001  # as every entrance
    """What clients and servers of streams send each other; the first byte chooses which. Raises InvalidRequest.

    Server-sent events are read whole and in two pieces, which the second byte cuts; both must give the same.
    """
    if not data:
        return
    kind, rest = data[0] % 6, data[1:]
    if kind == 0:
        at = rest[0] * len(rest) // 256 if rest else 0
        assert _events(rest[:at], rest[at:]) == _events(rest)
    elif kind == 1:
        parse_event_id(rest.decode("latin-1"))
    elif kind == 2:
        parse_after(rest.decode("latin-1"))
    else:
        read = (read_ack, read_from_client, read_from_server)[kind - 3]
        message = read(rest)
        assert read(msgspec.json.encode(message)) == message


def _events(*pieces: bytes) -> tuple[list[SseEvent], bytes | None, int | None, bool]:
    reader = SseReader(_MAX_EVENT_BYTES)
    events: list[SseEvent] = []
    try:
        for piece in pieces:
            events += reader.feed(piece)
    except EventTooLarge as error:
        return events + error.events, None, None, True
    return events, reader.last_event_id, reader.retry_ms, False


def read_gguf_file(data: bytes, folder: Path) -> None:
    """A GGUF file, from its bytes to a summary and a plan. Raises ModelFileError."""
    path = _write_gguf(data, folder)
    summarise(path)
    open_plan(path)


def read_gguf_text(data: bytes, folder: Path) -> None:
    """The text side of a GGUF file: tokenizer and chat template, from bytes to token ids. Raises ModelFileError."""
    _encode(_write_gguf(data, folder))


def read_weights_folder(data: bytes, folder: Path) -> None:
    """A Hugging Face folder, from the bytes of its config.json and model.safetensors to a plan. Raises ModelFileError.

    The first byte's high bit says whether the safetensors file is the input's, or a header alone, to which its length and a
    hole of the size that its offsets ask for are added. Two bytes with the length of config.json follow, then both.
    """
    length = int.from_bytes(data[1:3], "little")
    config, weights = data[3 : 3 + length], data[3 + length :]
    (folder / "config.json").write_bytes(config)
    path = folder / "model.safetensors"
    if is_extended(data):
        hole = max((int(end) for end in _END.findall(weights)), default=0)
        path.write_bytes(len(weights).to_bytes(8, "little") + weights)
        os.truncate(path, 8 + len(weights) + hole)
    else:
        path.write_bytes(weights)
    read_safetensors(path)
    summarise(folder)
    open_plan(folder)


def read_tokenizer_folder(data: bytes, folder: Path) -> None:
    """The text side of a Hugging Face folder: from its files' bytes to token ids. Raises ModelFileError.

    Two bytes with the length of tokenizer_config.json come first, then it and tokenizer.json.
    """
    length = int.from_bytes(data[:2], "little")
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "tokenizer_config.json").write_bytes(data[2 : 2 + length])
    (folder / "tokenizer.json").write_bytes(data[2 + length :])
    _encode(folder)


def is_extended(data: bytes) -> bool:
    """Whether the file that `data` begins is to have a hole behind it."""
    return data[:1] > b"\x7f"


def write_file(path: Path, data: bytes, *, extended: bool) -> None:
    """Write `data` to `path`; an `extended` file has a hole behind it, up to `SPARSE_BYTES`."""
    path.write_bytes(data)
    if extended:
        os.truncate(path, max(SPARSE_BYTES, len(data)))


def _write_gguf(data: bytes, folder: Path) -> Path:
    path = folder / "model.gguf"
    write_file(path, data[1:], extended=is_extended(data))
    return path


def _encode(path: Path) -> None:
    tokenizer = open_text(path).tokenizer
    with contextlib.suppress(InvalidRequest):  # tokens that the model has no row for
        for token in tokenizer.encode(_TEXT):
            assert 0 <= token < tokenizer.vocab_size
