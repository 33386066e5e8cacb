"""What one event of a streamed answer means for a measurement: /v1/chat/completions and /v1/completions.

Reads the shapes that OpenAI documents and those that vLLM, llama-server, OpenVINO Model Server and Headway send; choices
of one chunk are not told apart, since the lab asks for one. Knows no time.

A chunk counts when it brings text that the model wrote and the user waits for: an answer's `content`, a completion's
`text`, a `refusal`, reasoning (`reasoning_content`, or `reasoning` as newer servers call it), or the arguments of a tool
call. Arguments count because an editor's agent can do nothing before it has them: in its answers they are the answer. The
name of a called function alone does not: where the caller forced the tool, the server knows it before it has computed
anything, and arguments follow in any case (`{}` at least). A role, an empty string and null are not tokens.
"""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

import msgspec

from headway.wire.sse_reader import SseEvent

DeltaKind = Literal["content", "reasoning", "tool_call", "other", "done", "error", "garbage"]
"""`other`: nothing that counts, such as a role, an empty delta, usage, or an object we do not know."""
TEXT_KINDS: Final = frozenset[DeltaKind](("content", "reasoning", "tool_call"))
"""Kinds that stand for tokens: they alone make TTFT, ITL and the end."""

_MAX_MESSAGE_CHARS: Final = 300
_FAILED: Final = frozenset(("error", "abort"))
"""Finish reasons by which a server says that it failed (OpenRouter's `error`, vLLM's `abort`)."""
_MAX_CODE_CHARS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """Tokens as the server counted them. None = not said; `cached_tokens`: the part of the prompt not computed anew."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """What an event brings. `text`: of all kinds that count, joined. `message`: what went wrong, of error and garbage."""

    kind: DeltaKind
    text: str = ""
    usage: TokenUsage | None = None
    finish_reason: str | None = None
    message: str | None = None


_Count = Annotated[int, msgspec.Meta(ge=0, le=2**24)]
"""Every token has an interval, which is kept: a server's -1, written as 4294967295, would take all memory for them."""

_Text = str | None


class _Function(msgspec.Struct):
    arguments: _Text = None


class _ToolCall(msgspec.Struct):
    function: _Function | None = None


class _Message(msgspec.Struct):
    content: _Text = None
    refusal: _Text = None
    reasoning_content: _Text = None
    reasoning: _Text = None
    tool_calls: list[_ToolCall] | None = None
    function_call: _Function | None = None


class _Choice(msgspec.Struct):
    delta: _Message | None = None
    text: _Text = None
    finish_reason: _Text = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: _Count | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Timings(msgspec.Struct):
    cache_n: _Count | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    timings: _Timings | None = None
    error: object = None
    object_name: _Text = msgspec.field(name="object", default=None)


_CHUNKS: Final = msgspec.json.Decoder(_Chunk)


def read_delta(event: SseEvent) -> Delta:
    """Read one event; whatever the bytes, a value: what cannot be read has kind `garbage`."""
    if event.data.strip() == b"[DONE]":
        return Delta(kind="done")
    if event.name == b"error":
        return Delta(kind="error", message=error_message(event.data))
    try:
        chunk = _CHUNKS.decode(event.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Delta(kind="garbage", message=_shortened(str(error)))
    if chunk.error is not None or chunk.object_name == "error":
        return Delta(kind="error", message=error_message(event.data))
    return _read_chunk(chunk)


def error_message(body: bytes) -> str:
    """Find the sentence in an error's JSON, which servers nest differently; else the start of the text itself."""
    try:
        value: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = None
    while isinstance(value, dict):
        value = value.get("error") or value.get("message") or value.get("detail")
    return _shortened(value if isinstance(value, str) else body.decode(errors="replace"))


def error_code(body: bytes) -> str | None:
    """Return the `code` in an error's JSON, or beside the error; None where there is none, or one that is no text."""
    try:
        value: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    while isinstance(value, dict):
        if isinstance(code := value.get("code"), str) and code:
            return code[:_MAX_CODE_CHARS]
        value = value.get("error")
    return None


def _read_chunk(chunk: _Chunk) -> Delta:
    content, reasoning, arguments = "", "", ""
    finish_reason = None
    for choice in chunk.choices or ():
        content += choice.text or ""
        finish_reason = choice.finish_reason or finish_reason
        if (delta := choice.delta) is not None:
            content += (delta.content or "") + (delta.refusal or "")
            reasoning += delta.reasoning_content or delta.reasoning or ""  # one text under two names
            functions = [call.function for call in delta.tool_calls or ()]
            arguments += "".join(part.arguments or "" for part in [*functions, delta.function_call] if part)
    usage = _usage(chunk)
    if finish_reason in _FAILED:
        return Delta(
            kind="error", usage=usage, message=f"the answer ended with finish_reason {finish_reason}"
        )
    kind: DeltaKind = (
        "content" if content else "reasoning" if reasoning else "tool_call" if arguments else "other"
    )
    return Delta(kind=kind, text=content + reasoning + arguments, usage=usage, finish_reason=finish_reason)


def _usage(chunk: _Chunk) -> TokenUsage | None:
    usage, details = chunk.usage, chunk.usage and chunk.usage.prompt_tokens_details
    cached = details.cached_tokens if details else None
    if cached is None and chunk.timings is not None:
        cached = chunk.timings.cache_n  # llama-server's own field
    if usage is None:
        return None if cached is None else TokenUsage(cached_tokens=cached)
    return TokenUsage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=cached,
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE_CHARS else text[: _MAX_MESSAGE_CHARS - 1] + "…"
