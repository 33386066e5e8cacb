"""Whether and how one model takes tools: found once, when it is served, by showing its chat template a tool.

A template that ignores tools would hide them from the model, so a model whose template does is served without them, and
requests with tools are refused. Most templates read `tools`; Phi-4-mini's reads the JSON text of a list from the system
message ("Phi-4-mini-instruct", model card, tool-enabled function-calling format). It knows no requests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from headway.core.errors import InvalidRequest
from headway.gateway.tool_syntax import ToolSyntax, find_syntax

_TOOL: Final = {
    "type": "function",
    "function": {
        "name": "probe_tool",
        "description": "Probe.",
        "parameters": {"type": "object", "properties": {"probe": {"type": "string"}}},
    },
}
_SYSTEM: Final = {"role": "system", "content": "Probe."}
_CHAT: Final = [{"role": "user", "content": "Probe."}]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSupport:
    """How one model takes tools.

    syntax       how it writes calls
    special_ids  the markers that are special tokens, which a detokenizer leaves out unless told
    in_system    the tools are text in the system message, not the template's `tools`
    shows_calls  the template writes the calls of earlier messages
    """

    syntax: ToolSyntax
    special_ids: Mapping[str, int]
    in_system: bool
    shows_calls: bool


class Template(Protocol):
    """What has to be known of a chat template."""

    @property
    def source(self) -> str:
        """Its text."""
        ...

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **extra: Any,
    ) -> str:
        """Return the prompt, ending where the assistant's answer begins; raises InvalidRequest.

        extra   further names that the template may read
        """
        ...


class Vocabulary(Protocol):
    """What has to be known of a tokenizer."""

    def encode(self, text: str) -> Sequence[int]:
        """Return the ids of `text`; special tokens written in it are recognised."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes that a token stands for."""
        ...

    def is_special(self, token_id: int) -> bool:
        """Return whether a token is control rather than text."""
        ...


def find_tool_support(template: Template | None, vocabulary: Vocabulary) -> ToolSupport | None:
    """Return how a model takes tools; None if it takes none, or writes calls in a way that is not supported."""
    if template is None:
        return None
    syntax = find_syntax(template.source, lambda mark: _token_id(vocabulary, mark) is not None)
    if syntax is None:
        return None
    takes = _differ(template, _CHAT, _CHAT, [_TOOL])
    in_system = not takes and _differ(template, [_SYSTEM], [{**_SYSTEM, "tools": "[]"}], None)
    if not (takes or in_system):
        return None
    if syntax.end not in template.source and _token_id(vocabulary, syntax.end) is None:
        syntax = replace(syntax, end="")  # Granite writes Phi's list without an end
    special_ids: dict[str, int] = {}
    for mark in filter(None, (syntax.begin, syntax.end)):
        token_id = _token_id(vocabulary, mark)
        if token_id is not None and vocabulary.is_special(token_id):
            special_ids[mark] = token_id
    return ToolSupport(
        syntax=syntax,
        special_ids=special_ids,
        in_system=in_system,
        shows_calls="tool_calls" in template.source,
    )


def _token_id(vocabulary: Vocabulary, mark: str) -> int | None:
    """Return the token that `mark` is, if it is one."""
    ids = [i for i in vocabulary.encode(mark) if vocabulary.token_bytes(i) == mark.encode()]
    return ids[0] if ids else None


def _differ(
    template: Template,
    without: Sequence[Mapping[str, Any]],
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
) -> bool:
    """Whether a prompt of `messages` with `tools` differs from that of `without`; not if the template refuses either."""
    try:
        return template.render(messages, tools=tools) != template.render(without)
    except InvalidRequest:
        return False
