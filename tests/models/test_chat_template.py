from datetime import UTC, datetime
from typing import Any

import pytest

from headway.core.errors import InvalidRequest, ModelFileError
from headway.models.chat_template import ChatTemplate
from headway.models.fetch import resolve_model
from headway.models.gguf import read_gguf

USER = [{"role": "user", "content": "Hi"}]


def rendered(source: str, **values: Any) -> str:
    return ChatTemplate(source).render(USER, **values)


@pytest.mark.model
def test_the_demo_models_template() -> None:
    template = ChatTemplate(str(read_gguf(resolve_model("smollm2")).metadata["tokenizer.chat_template"]))
    assert template.render(
        [*USER, {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Why?"}]
    ) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nYes?<|im_end|>\n"
        "<|im_start|>user\nWhy?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert template.render([{"role": "system", "content": "Be brief."}], add_generation_prompt=False) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
    )


def test_tokens_and_extra_values_are_known_by_name() -> None:
    template = ChatTemplate("{{ bos_token }}{{ flag }}{{ eos_token }}", bos_token="<s>", eos_token="</s>")
    assert template.render(USER, flag="x") == "<s>x</s>"


def test_extra_values_do_not_replace_the_conversation() -> None:
    assert rendered("{{ bos_token }}|{{ messages | length }}", bos_token="<|im_start|>") == "|1"


def test_white_space_around_blocks_is_trimmed_as_authors_expect() -> None:
    assert rendered("  {% if true %}\n  x\n  {% endif %}\ny") == "  x\ny"


def test_loop_controls_and_generation_tags_work() -> None:
    source = "{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}"
    assert rendered(source) == "01"
    assert rendered("a{% generation %}b{{ messages[0].content }}{% endgeneration %}c") == "abHic"


def test_json_is_plain() -> None:
    tools = [{"name": "f", "description": "<a & 'é'>"}]
    source = "{{ tools[0] | tojson }}"
    assert rendered(source, tools=tools) == '{"name": "f", "description": "<a & \'é\'>"}'
    assert rendered("{{ [1] | tojson(indent=2) }}") == "[\n  1\n]"


def test_no_tools_are_none() -> None:
    assert rendered("{{ tools is none }}") == "True"


def test_a_template_that_asks_for_the_date_gets_the_clock_given() -> None:
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}", now=lambda: datetime(2024, 7, 26, tzinfo=UTC))
    assert template.render(USER) == "26 Jul 2024"


def test_messages_are_never_run_as_a_template() -> None:
    text = "{{ 7 * 7 }}{% raise %}"
    assert ChatTemplate("{{ messages[0].content }}").render([{"role": "user", "content": text}]) == text


def test_a_refusal_reaches_the_caller_in_the_templates_words() -> None:
    with pytest.raises(InvalidRequest, match="refuses these messages: Roles must alternate!") as caught:
        rendered("{{ raise_exception('Roles must alternate!') }}")
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' + messages[0]['missing'] }}",
        "{{ messages[0].missing.deeper }}",
        "{{ 'x' + none }}",
        "{{ 1 // 0 }}",
        "{{ messages[5]['role'] }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_what_a_template_cannot_do_is_an_invalid_request(source: str) -> None:
    with pytest.raises(InvalidRequest, match=r"cannot render these messages: ."):
        rendered(source)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(10 ** 9) %}{% endfor %}",
        "{% for i in range(5000) %}{% for j in range(5000) %}{% endfor %}{% endfor %}",
    ],
)
def test_loops_are_bounded(source: str) -> None:
    with pytest.raises(InvalidRequest, match=r"range\(\) take more than 1000000 turns"):
        rendered(source)


def test_output_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.models.chat_template.MAX_OUTPUT_CHARS", 1000)
    assert len(rendered("{% for i in range(1000) %}x{% endfor %}")) == 1000
    with pytest.raises(InvalidRequest, match="exceeds 1000 characters"):
        rendered("{% for i in range(1001) %}x{% endfor %}")


@pytest.mark.parametrize("source", ["{% if %}", "{{ x", "{% nonsense %}", "{{ x | no_such_filter }}"])
def test_a_template_that_does_not_parse_is_the_files_fault(source: str) -> None:
    with pytest.raises(ModelFileError, match="does not parse"):
        ChatTemplate(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{% for i in x %}" * 25 + "{% endfor %}" * 25,
        "{% for i in x %}" * 200 + "{% endfor %}" * 200,
        "{% break %}",
        "{{ 1" + "0" * 5000 + " }}",
    ],
    ids=lambda source: source[:12],
)
def test_a_template_beyond_pythons_limits_is_the_files_fault(source: str) -> None:
    with pytest.raises(ModelFileError, match="does not compile"):
        ChatTemplate(source)
