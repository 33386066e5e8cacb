import pytest

from headway.gateway.tool_support import find_tool_support
from headway.gateway.tool_syntax import CODER, FUNCTOOLS, HERMES, LLAMA, MISTRAL, PHI, ToolSyntax, find_syntax
from support.byte_text import ByteTokenizer
from support.tool_text import (
    CODER_SOURCE,
    HERMES_SOURCE,
    LLAMA_SOURCE,
    MISTRAL_SOURCE,
    NO_TOOLS_SOURCE,
    PHI_SOURCE,
    MarkedTokenizer,
    template,
)

TOKENIZER = MarkedTokenizer()


@pytest.mark.parametrize(
    ("source", "syntax", "special", "in_system", "shows_calls"),
    [
        (HERMES_SOURCE, HERMES, set(), False, True),
        (CODER_SOURCE, CODER, set(), False, True),
        (LLAMA_SOURCE, LLAMA, {"<|python_tag|>"}, False, True),
        (MISTRAL_SOURCE, MISTRAL, {"[TOOL_CALLS]"}, False, True),
        (PHI_SOURCE, PHI, {"<|tool_call|>", "<|/tool_call|>"}, True, False),
    ],
)
def test_what_a_template_shows(
    source: str, syntax: ToolSyntax, special: set[str], in_system: bool, shows_calls: bool
) -> None:
    support = find_tool_support(template(source), TOKENIZER)
    assert support is not None
    assert support.syntax == syntax
    assert set(support.special_ids) == special
    assert all(
        TOKENIZER.token_bytes(token_id) == mark.encode() for mark, token_id in support.special_ids.items()
    )
    assert (support.in_system, support.shows_calls) == (in_system, shows_calls)


@pytest.mark.parametrize(
    "source",
    [
        NO_TOOLS_SOURCE,
        "{# <tool_call> #}" + NO_TOOLS_SOURCE,  # shows calls and takes no tools
        HERMES_SOURCE.replace("<tool_call>", "<|tool_calls_begin|>"),
        HERMES_SOURCE + "{# <arg_key> #}",
        MISTRAL_SOURCE + "{# [ARGS] #}",
        "{{ raise_exception('never') }}" + HERMES_SOURCE,
    ],
)
def test_a_model_that_cannot_be_given_tools(source: str) -> None:
    assert find_tool_support(template(source), TOKENIZER) is None


def test_no_template_no_tools() -> None:
    assert find_tool_support(None, TOKENIZER) is None


def test_an_end_that_neither_template_nor_vocabulary_has_is_not_written() -> None:
    granite = HERMES_SOURCE.replace("<tool_call>", "<|tool_call|>").replace("</tool_call>", "")
    support = find_tool_support(template(granite), ByteTokenizer())
    assert support is not None
    assert (support.syntax.begin, support.syntax.end) == (PHI.begin, "")
    marked = find_tool_support(template(granite), TOKENIZER)
    assert marked is not None
    assert marked.syntax == PHI


@pytest.mark.parametrize(
    ("text", "syntax"),
    [
        ("… functools[{…}]", FUNCTOOLS),
        ("<tool_call> … <|eot_id|> '\"parameters\": '", HERMES),
        ("<|tool|>", None),
        ("'\"parameters\": '", None),
    ],
)
def test_a_syntax_is_told_by_its_marks(text: str, syntax: ToolSyntax | None) -> None:
    assert find_syntax(text, lambda _: False) == syntax
