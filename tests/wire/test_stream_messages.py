import contextlib
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headway.core.errors import InvalidRequest
from headway.wire.errors import ErrorFields
from headway.wire.stream_messages import (
    MAX_CLIENT_MESSAGE_BYTES,
    Ack,
    Heartbeat,
    Pong,
    Position,
    StreamError,
    StreamEvent,
    encode,
    read_ack,
    read_from_client,
    read_from_server,
)

numbers = st.integers(0, 2**53 - 1)
epochs = st.integers(1, 2**53 - 1)
positions = st.builds(Position, seq=numbers, epoch=epochs)
from_client = st.builds(Ack, seq=numbers, epoch=epochs) | st.builds(
    Heartbeat, ms=numbers, ack=positions | st.none()
)
text = st.text(st.characters(exclude_categories=["Cs"]))
fields = st.builds(ErrorFields, message=text, type=text, param=text | st.none(), code=text | st.none())
from_server = (
    st.builds(Pong, ms=numbers)
    | st.builds(StreamError, error=fields)
    | st.builds(
        StreamEvent,
        epoch=epochs,
        seq=numbers,
        kind=st.sampled_from(["content", "control", "error"]),
        data=text,
        name=text | st.none(),
        last=st.booleans(),
    )
)


@given(from_client)
def test_what_a_client_sends_arrives(message: Ack | Heartbeat) -> None:
    assert read_from_client(encode(message)) == message
    assert read_from_client(encode(message).decode()) == message
    assert len(encode(message)) < 100


@given(from_server)
def test_what_a_server_sends_arrives(message: Pong | StreamError | StreamEvent) -> None:
    assert read_from_server(encode(message)) == message


def test_the_messages_are_as_documented() -> None:
    assert encode(Ack(epoch=1, seq=17)) == b'{"type":"ack","seq":17,"epoch":1}'
    assert read_from_client('{"type":"ack","seq":17}') == Ack(epoch=1, seq=17)
    assert encode(Heartbeat(ms=5)) == b'{"type":"heartbeat","ms":5}'
    assert read_from_client(b'{"type":"heartbeat","ms":5,"ack":{"seq":3}}') == Heartbeat(
        ms=5, ack=Position(seq=3)
    )
    assert (
        encode(StreamEvent(epoch=1, seq=2, kind="content", data="{}"))
        == b'{"type":"event","epoch":1,"seq":2,"kind":"content","data":"{}"}'
    )
    assert read_ack(b'{"seq":17}') == Position(seq=17)


@pytest.mark.parametrize(
    "frame",
    [
        "", "[]", "null", "{}", '{"type":"ack"}', '{"type":"ack","seq":-1}', '{"type":"ack","seq":1.5}',
        '{"type":"ack","seq":"1"}', '{"type":"ack","seq":9007199254740992}', '{"type":"ack","seq":1,"epoch":0}',
        '{"type":"ack","seq":1,"x":1}', '{"type":"ack","seq":true}', '{"type":"event","seq":1}', '{"type":"heartbeat"}',
        '{"type":"heartbeat","ms":1e3}', '{"type":"ack","seq":1}{}', '{"type":"ack","seq":' + "9" * 400 + "}",
        '{"type":"' + "x" * MAX_CLIENT_MESSAGE_BYTES + '"}', "[" * 500, '{"type":"ack","seq":1,"\ud800":1}',
    ],
)  # fmt: skip
def test_anything_else_is_refused_in_a_short_sentence(frame: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_from_client(frame)
    assert len(caught.value.message) < 300


def test_a_client_reads_past_fields_that_it_does_not_know() -> None:
    assert read_from_server('{"type":"heartbeat","ms":1,"load":0.5}') == Pong(ms=1)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
keys = st.sampled_from(["type", "seq", "epoch", "ms", "ack", "error", "data", "kind", "name", "last", "x"])
tags = st.sampled_from(["ack", "heartbeat", "event", "error", "x"])


@given(
    st.dictionaries(keys, tags | json_values | numbers, max_size=6).map(json.dumps) | st.text() | st.binary()
)
@example('{"type":"ack","seq":1,"seq":2}')
def test_any_frame_is_a_message_or_refused(frame: str | bytes) -> None:
    for read in (read_from_client, read_from_server):
        with contextlib.suppress(InvalidRequest):
            message = read(frame)
            assert read(encode(message)) == message
