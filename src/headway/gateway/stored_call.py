"""A streaming call in the form that outlives the gateway: all that another process needs to go on with it.

With the records of its steps (`step_record`) it is enough for `replay`. Both are read by the version that wrote them: a
version is part of `system_fingerprint`, and a stream does not go on under another one.
"""

import msgspec

from headway.core.caller import Caller
from headway.core.request import Request
from headway.gateway.answer import AnswerHead
from headway.wire.service_headers import ServiceTerms


class StoredCall(msgspec.Struct, frozen=True, kw_only=True):
    """One accepted call.

    endpoint   path of its route, such as "/v1/chat/completions"
    body       as it came; parsed again it gives the same call
    head       what its chunks repeat, and the fingerprint under which they were made
    requests   what the engine was asked: prompts' ids, seeds, limits
    call_key   names its tool calls (`call_ids`)
    terms      what it asked of scheduling
    caller     who asked
    """

    endpoint: str
    body: bytes
    head: AnswerHead
    requests: tuple[Request, ...]
    call_key: bytes
    terms: ServiceTerms
    caller: Caller


class _Endpoint(msgspec.Struct):
    """Of a StoredCall."""

    endpoint: str


def encode_call(call: StoredCall) -> bytes:
    """Return a call as bytes."""
    return msgspec.msgpack.encode(call)


def decode_call(data: bytes) -> StoredCall:
    """Return the call again; raises msgspec.DecodeError for bytes that are none."""
    return msgspec.msgpack.decode(data, type=StoredCall)


def endpoint_of(data: bytes) -> str:
    """Return the path of a stored call's route; "" for bytes that are none."""
    try:
        return msgspec.msgpack.decode(data, type=_Endpoint).endpoint
    except msgspec.DecodeError:
        return ""
