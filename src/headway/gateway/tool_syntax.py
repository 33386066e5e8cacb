"""How a model writes tool calls, found from its chat template and vocabulary, never from its name.

A template shows earlier calls, or tells the model how to write them, so it holds the markers that the model was trained
on. The syntaxes are those that the models' makers publish with their templates: Qwen (after NousResearch's Hermes, and
Qwen3-Coder's own), Meta (Llama 3.1 and 3.2), Microsoft (Phi-4-mini), Mistral. `tool_parser` reads them, `tool_grammar`
forces them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSyntax:
    """How calls stand in an answer.

    name            for people
    begin           the marker that begins calls, anywhere in the text; it may include the bracket of a list
    end             what follows the calls that `begin` began, "" for nothing
    is_list         the calls after one `begin` stand in a JSON list
    is_bare         a call may begin the answer without a marker; more may follow any call after `;`
    margin          what is written between the markers and the object, and between an end and a beginning
    arguments_key   what the model calls the arguments; both keys are read
    has_short_ids   calls' ids must have nine letters and digits
    is_xml          a call is not a JSON object, but tags around plain text
    """

    name: str
    begin: str
    end: str = ""
    is_list: bool = False
    is_bare: bool = False
    margin: str = ""
    arguments_key: str = "arguments"
    has_short_ids: bool = False
    is_xml: bool = False

    @property
    def list_begin(self) -> str:
        """What begins a list after the marker, if calls stand in one."""
        return "[" if self.is_list and not self.begin.endswith("[") else ""


HERMES: Final = ToolSyntax(name="hermes", begin="<tool_call>", end="</tool_call>", margin="\n")
CODER: Final = replace(HERMES, name="qwen-coder", is_xml=True)
LLAMA: Final = ToolSyntax(name="llama", begin="<|python_tag|>", is_bare=True, arguments_key="parameters")
PHI: Final = ToolSyntax(name="phi", begin="<|tool_call|>", end="<|/tool_call|>", is_list=True)
FUNCTOOLS: Final = ToolSyntax(name="functools", begin="functools[", is_list=True)
MISTRAL: Final = ToolSyntax(name="mistral", begin="[TOOL_CALLS]", is_list=True, has_short_ids=True)


def find_syntax(template: str, is_token: Callable[[str], bool]) -> ToolSyntax | None:
    """Return the syntax of a model's calls; None if it has none that is supported.

    template   the chat template's text
    is_token   whether a text is a token of its own
    """
    if "<tool_call>" in template:
        if "<arg_key>" in template:  # GLM's way of writing arguments
            return None
        return CODER if "<function=" in template and "<parameter=" in template else HERMES
    if "[TOOL_CALLS]" in template:
        return None if "[ARGS]" in template or "[CALL_ID]" in template else MISTRAL
    if "functools[" in template:
        return FUNCTOOLS
    if "<|tool_call|>" in template or ("<|tool|>" in template and is_token("<|tool_call|>")):
        return PHI
    if '"parameters": ' in template and ("<|python_tag|>" in template or "<|eot_id|>" in template):
        return LLAMA
    return None
