"""`POST /v1/summary`: a conversation as it was sent to chat completions, the call that sums it up, and the response."""

from typing import Annotated, Final, Literal

import msgspec

from headway.core.sampling import SamplingParams
from headway.wire.chat_request import ChatCall, check_template_kwargs, parse_messages
from headway.wire.fields import convert, decode_object, select
from headway.wire.options import GenerationOptions
from headway.wire.schema_hints import MESSAGES
from headway.wire.summary import MAX_SUMMARY_TOKENS, SUMMARY_STOP, asked_for_summary
from headway.wire.tools import ToolChoice, chat_tool, check_tools_bytes, parse_tools
from headway.wire.usage import UsageFields

IGNORED: Final = frozenset({"metadata", "user"})
_NEUTRAL: Final[dict[str, tuple[object, ...]]] = {"stream": (False,)}

_OPTIONS: Final = GenerationOptions(
    sampling=SamplingParams(temperature=0.0),
    seed=0,
    max_tokens=MAX_SUMMARY_TOKENS,
    n=1,
    stop=(SUMMARY_STOP,),
    stop_token_ids=(),
    ignore_eos=False,
    stream=False,
    include_usage=False,
)


class SummaryFields(msgspec.Struct, kw_only=True):
    """The supported fields, typed: those of a chat completion that decide what its prompt is."""

    messages: Annotated[list[dict[str, msgspec.Raw]], MESSAGES]
    model: str | None = None
    tools: list[dict[str, msgspec.Raw]] | None = None
    chat_template_kwargs: dict[str, bool | int | float | str | None] | None = None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The response. `summary`: one line of at most 128 characters; "" = the model had nothing to say."""

    object: Literal["summary"] = "summary"
    model: str
    summary: str
    usage: UsageFields


def parse_summary(body: bytes) -> ChatCall:
    """Parse and check a request's body; return the chat that makes the summary. Raises InvalidRequest.

    Tools are shown to the model though it should call none: hidden, they would be missing from the cached prefix.
    """
    chosen = select(
        decode_object(body),
        supported=SummaryFields.__struct_fields__,
        ignored=IGNORED,
        neutral=_NEUTRAL,
        long=("messages", "tools"),
    )
    check_tools_bytes(chosen.get("tools"))
    fields = convert(chosen, SummaryFields)
    tools = parse_tools(fields.tools or [], chat_tool)
    return ChatCall(
        model=fields.model,
        messages=asked_for_summary(parse_messages(fields.messages)),
        options=_OPTIONS,
        tools=tools,
        tool_choice=ToolChoice("auto" if tools else "none"),
        template_kwargs=check_template_kwargs(fields.chat_template_kwargs or {}),
    )
