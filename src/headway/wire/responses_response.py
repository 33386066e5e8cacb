"""What `/v1/responses` answers, whole and in events: shapes only, after OpenAI's API reference."""

from typing import Literal

import msgspec

from headway.core.messages import Usage

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputText(msgspec.Struct, frozen=True, kw_only=True, tag="output_text"):
    """Text of an answer."""

    text: str
    annotations: list[str] = []
    logprobs: list[str] = []


class OutputMessage(msgspec.Struct, frozen=True, kw_only=True, tag="message"):
    """An answer's text as an item."""

    id: str
    status: ItemStatus
    role: Literal["assistant"] = "assistant"
    content: list[OutputText]


class FunctionCall(msgspec.Struct, frozen=True, kw_only=True, tag="function_call"):
    """A call of a tool. `arguments`: empty when the item begins in a stream."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus


Item = OutputMessage | FunctionCall


class InputTokensDetails(msgspec.Struct, frozen=True):
    """`cached_tokens`: prompt tokens that the prefix cache saved computing."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(msgspec.Struct, frozen=True):
    """Reasoning is not counted apart."""

    reasoning_tokens: int = 0


class ResponseUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails = OutputTokensDetails()
    total_tokens: int


class IncompleteDetails(msgspec.Struct, frozen=True):
    """Why an answer is incomplete."""

    reason: Literal["max_output_tokens"]


class ResponseFailure(msgspec.Struct, frozen=True):
    """Why there is no answer."""

    code: str
    message: str


class Reasoning(msgspec.Struct, frozen=True):
    """Nothing is known of it here."""

    effort: None = None
    summary: None = None


class TextConfig(msgspec.Struct, frozen=True):
    """The shape of the answer, as it was asked for."""

    format: dict[str, msgspec.Raw]


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """A response, whole or as far as a stream has come."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    background: Literal[False] = False
    error: ResponseFailure | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None
    max_output_tokens: int | None
    model: str
    output: list[Item]
    parallel_tool_calls: bool
    previous_response_id: None = None
    reasoning: Reasoning = Reasoning()
    service_tier: Literal["default"] = "default"
    store: Literal[False] = False
    temperature: float
    text: TextConfig
    tool_choice: str | dict[str, msgspec.Raw]
    tools: list[dict[str, msgspec.Raw]]
    top_p: float
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | None
    metadata: dict[str, str] = {}


class ResponseCreated(msgspec.Struct, frozen=True, kw_only=True, tag="response.created"):
    """Begins a stream."""

    sequence_number: int
    response: Response


class ResponseInProgress(msgspec.Struct, frozen=True, kw_only=True, tag="response.in_progress"):
    """The answer is being written."""

    sequence_number: int
    response: Response


class ItemAdded(msgspec.Struct, frozen=True, kw_only=True, tag="response.output_item.added"):
    """An item begins."""

    sequence_number: int
    output_index: int
    item: Item


class PartAdded(msgspec.Struct, frozen=True, kw_only=True, tag="response.content_part.added"):
    """A message's text begins."""

    sequence_number: int
    item_id: str
    output_index: int
    content_index: int = 0
    part: OutputText


class OutputTextDelta(msgspec.Struct, frozen=True, kw_only=True, tag="response.output_text.delta"):
    """Text that a message gained."""

    sequence_number: int
    item_id: str
    output_index: int
    content_index: int = 0
    delta: str
    logprobs: list[str] = []


class OutputTextDone(msgspec.Struct, frozen=True, kw_only=True, tag="response.output_text.done"):
    """A message's whole text."""

    sequence_number: int
    item_id: str
    output_index: int
    content_index: int = 0
    text: str
    logprobs: list[str] = []


class PartDone(msgspec.Struct, frozen=True, kw_only=True, tag="response.content_part.done"):
    """A message's text is complete."""

    sequence_number: int
    item_id: str
    output_index: int
    content_index: int = 0
    part: OutputText


class ArgumentsDelta(msgspec.Struct, frozen=True, kw_only=True, tag="response.function_call_arguments.delta"):
    """Text that a call's arguments gained."""

    sequence_number: int
    item_id: str
    output_index: int
    delta: str


class ArgumentsDone(msgspec.Struct, frozen=True, kw_only=True, tag="response.function_call_arguments.done"):
    """A call's whole arguments."""

    sequence_number: int
    item_id: str
    output_index: int
    name: str
    arguments: str


class ItemDone(msgspec.Struct, frozen=True, kw_only=True, tag="response.output_item.done"):
    """An item is complete."""

    sequence_number: int
    output_index: int
    item: Item


class ResponseCompleted(msgspec.Struct, frozen=True, kw_only=True, tag="response.completed"):
    """The end of an answer."""

    sequence_number: int
    response: Response


class ResponseIncomplete(msgspec.Struct, frozen=True, kw_only=True, tag="response.incomplete"):
    """The end of an answer that ran into its limit."""

    sequence_number: int
    response: Response


class ResponseFailed(msgspec.Struct, frozen=True, kw_only=True, tag="response.failed"):
    """The end of a stream that an error cut off."""

    sequence_number: int
    response: Response


ResponseEvent = (
    ResponseCreated
    | ResponseInProgress
    | ItemAdded
    | PartAdded
    | OutputTextDelta
    | OutputTextDone
    | PartDone
    | ArgumentsDelta
    | ArgumentsDone
    | ItemDone
    | ResponseCompleted
    | ResponseIncomplete
    | ResponseFailed
)


def response_usage(usage: Usage) -> ResponseUsage:
    """Describe a request's usage."""
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=InputTokensDetails(usage.cached_tokens),
        output_tokens=usage.completion_tokens,
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
    )
