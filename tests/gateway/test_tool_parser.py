import itertools
import json
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.gateway.text_events import ToolCallArguments, ToolCallStart
from headway.gateway.tool_parser import Content, Found, ToolParser
from headway.gateway.tool_syntax import CODER, FUNCTOOLS, HERMES, LLAMA, MISTRAL, PHI, ToolSyntax

FUNCTIONS = {
    "get_weather": {"days": frozenset({"integer"}), "detail": frozenset({"boolean", "null"})},
    "now": dict[str, frozenset[str]](),
}
SYNTAXES = [HERMES, CODER, LLAMA, PHI, FUNCTOOLS, MISTRAL]
CITY = '{"city": "Paris"}'
ONE = f'{{"name": "get_weather", "arguments": {CITY}}}'
NOW = '{"name": "now", "arguments": {}}'


def parser(syntax: ToolSyntax, max_calls: int | None = None) -> ToolParser:
    ids = itertools.count()
    return ToolParser(0, syntax, FUNCTIONS, lambda: f"call_{next(ids)}", max_calls)


def read(syntax: ToolSyntax, parts: Iterable[str], max_calls: int | None = None) -> list[Found]:
    machine = parser(syntax, max_calls)
    found = [event for part in parts for event in machine.push(part)]
    return found + machine.flush()


def summary(found: Sequence[Found]) -> list[str]:
    """Content as it is; each call as name(arguments)."""
    lines: list[str] = []
    in_content = False
    for event in found:
        match event:
            case Content(_, text):
                assert text
                lines[len(lines) - in_content :] = [(lines[-1] if in_content else "") + text]
            case ToolCallStart(0, index, id, name):
                assert id == f"call_{index}"
                lines.append(name + ":")
            case ToolCallArguments(0, _, text):
                assert text
                lines[-1] += text
        in_content = isinstance(event, Content)
    return lines


def summarised(syntax: ToolSyntax, text: str) -> list[str]:
    return summary(read(syntax, [text]))


WEATHER = "get_weather:" + CITY


@pytest.mark.parametrize(
    ("syntax", "text", "expected"),
    [
        (HERMES, "plain text", ["plain text"]),
        (HERMES, f"<tool_call>\n{ONE}\n</tool_call>", [WEATHER]),
        (HERMES, f"Let me see.\n\n<tool_call>\n{ONE}\n</tool_call>\n", ["Let me see.", WEATHER]),
        (
            HERMES,
            f"<tool_call>\n{ONE}\n</tool_call>\n<tool_call>\n{NOW}\n</tool_call>",
            [WEATHER, "now:{}"],
        ),
        (HERMES, f"<tool_call>{ONE}</tool_call> and more ", [WEATHER, "and more "]),
        (HERMES, f"<tool_call>[{ONE}, {NOW}]</tool_call>", [WEATHER, "now:{}"]),
        (HERMES, f"<tool_call>{ONE}<tool_call>{NOW}", [WEATHER, "now:{}"]),
        (LLAMA, '{"name": "get_weather", "parameters": {"city": "Paris"}}', [WEATHER]),
        (LLAMA, '\n{"type": "function", "name": "now", "parameters": {}}', ["now:{}"]),
        (LLAMA, '{"type": "function", "function": "now", "parameters": {}}', ["now:{}"]),
        (LLAMA, f"<|python_tag|>{ONE}; {NOW}", [WEATHER, "now:{}"]),
        (LLAMA, f"{ONE}; {NOW}", [WEATHER, "now:{}"]),
        (LLAMA, f"{ONE}\n{NOW}\n", [WEATHER, "now:{}"]),
        (LLAMA, f"{ONE}; that is all", [WEATHER, "; that is all"]),
        (LLAMA, 'text {"name": "now", "parameters": {}}', ['text {"name": "now", "parameters": {}}']),
        (LLAMA, '{"name": "Bob", "parameters": {}}', ['{"name": "Bob", "parameters": {}}']),
        (LLAMA, '{"name": "now", "age": 7}', ['{"name": "now", "age": 7}']),
        (LLAMA, '{"answer": [1, {"a": "}"}]}', ['{"answer": [1, {"a": "}"}]}']),
        (PHI, f"<|tool_call|>[{ONE}, {NOW}]<|/tool_call|>", [WEATHER, "now:{}"]),
        (PHI, f"<|tool_call|>[{ONE}]", [WEATHER]),
        (PHI, f"<|tool_call|>{ONE}", [WEATHER]),
        (FUNCTOOLS, f"functools[{ONE}]", [WEATHER]),
        (FUNCTOOLS, "import functools\nimport json", ["import functools\nimport json"]),
        (
            MISTRAL,
            f'[TOOL_CALLS] [{ONE[:-1]}, "id": "abcdefghi"}}, {NOW}]',
            [WEATHER, "now:{}"],
        ),
    ],
)
def test_each_syntax(syntax: ToolSyntax, text: str, expected: list[str]) -> None:
    assert summarised(syntax, text) == expected


@pytest.mark.parametrize(
    ("object_", "expected"),
    [
        ('{"arguments": {"city": "Paris"}, "name": "get_weather"}', WEATHER),
        ('{ "name" : "get_weather" ,\n "arguments" : {"city": "Paris"} }', WEATHER),
        ('{"id": 7, "x": [1, "]"], "y": null, "name": "now", "arguments": {}}', "now:{}"),
        ('{"name": "now"}', "now:{}"),
        ('{"name": "now", "arguments": null}', "now:{}"),
        ('{"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}', WEATHER),
        ('{"name": "n\\u006fw", "arguments": {"a": {"b": "}\\"{"}}}', 'now:{"a": {"b": "}\\"{"}}'),
        ('{"name": "now", "arguments": {\'a\': True,}}', "now:{'a': True,}"),
        ('{"name": "now", "arguments": {"é": "🙂"},}', 'now:{"é": "🙂"}'),
    ],
)
def test_the_object_is_read_whatever_its_order_and_arguments_are_passed_on_as_written(
    object_: str, expected: str
) -> None:
    assert summarised(HERMES, f"<tool_call>\n{object_}\n</tool_call>") == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>",
        "<tool_call>\nhello</tool_call>",
        "<tool_call>\n{not json",
        '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>',
        '<tool_call>{"name": 5, "arguments": {}}</tool_call>',
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>{"arguments": {"city": "Paris"}, "na',
        "<tool_call><tool_cal",
        "<tool_call>[]",
        '<tool_call>{"a": <tool_call>{"b" 5}',
        " \n",
    ],
)
def test_what_is_no_call_is_given_back_as_it_was(text: str) -> None:
    assert summarised(HERMES, text) == [text]


def test_white_space_before_what_is_no_bare_call_is_given_back_once() -> None:
    assert read(LLAMA, ["\n{<tool"]) == [Content(0, "\n{<tool")]


def tagged(*parameters: tuple[str, str], name: str = "get_weather") -> str:
    inside = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"<tool_call>\n<function={name}>\n{inside}</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (tagged(("city", "Paris")), [WEATHER]),
        ("Hm.\n" + tagged(("city", "Paris")) + "\n" + tagged(name="now"), ["Hm.", WEATHER, "now:{}"]),
        (tagged(("city", 'a "b"\n\n<c>\t')), ['get_weather:{"city": "a \\"b\\"\\n\\n<c>\\t"}']),
        (tagged(("city", "5"), ("days", "5")), ['get_weather:{"city": "5", "days": 5}']),
        (tagged(("days", "five"), ("detail", "5")), ['get_weather:{"days": "five", "detail": "5"}']),
        (tagged(("detail", "null"), ("city", "")), ['get_weather:{"detail": null, "city": ""}']),
        (tagged(("days", "NaN")), ['get_weather:{"days": "NaN"}']),
        (
            "<tool_call><function=get_weather><parameter=city>Paris</parameter></function></tool_call>",
            [WEATHER],
        ),
        (tagged(("city", "Paris"))[:-12], [WEATHER]),
        (tagged(("city", "Paris")).replace("</function>", "oops"), [WEATHER, "oops\n</tool_call>"]),
        (tagged(("city", "Paris"))[:54], ['get_weather:{"city": "Pa']),
        (tagged(name="unknown"), [tagged(name="unknown")]),
        ("<tool_call>\n</tool_call>", ["<tool_call>\n</tool_call>"]),
        ('<tool_call>{"name": "now"}', ['<tool_call>{"name": "now"}']),
    ],
)
def test_calls_in_tags_come_out_as_json(text: str, expected: list[str]) -> None:
    assert summarised(CODER, text) == expected


def test_tagged_text_streams() -> None:
    machine = parser(CODER)
    machine.push("<tool_call>\n<function=get_weather>\n")
    assert machine.push("<parameter=city>\nPar") == [ToolCallArguments(0, 0, '{"city": "Par')]
    assert machine.push("is\n</para") == [ToolCallArguments(0, 0, "is")]
    assert machine.push("graph>") == [ToolCallArguments(0, 0, "\\n</paragraph>")]
    assert machine.push("\n</parameter>") == [ToolCallArguments(0, 0, '"')]
    assert machine.push("\n</function>") == [ToolCallArguments(0, 0, "}")]


@given(st.dictionaries(st.sampled_from(["city", "days", "detail"]), st.text(max_size=12)))
def test_any_tagged_text_is_json_in_the_end(values: dict[str, str]) -> None:
    text = tagged(*((key, value.replace("</parameter>", "")) for key, value in values.items()))
    (line,) = summarised(CODER, text)
    arguments = json.loads(line.removeprefix("get_weather:"))
    assert list(arguments) == list(values)
    assert arguments.get("city") == values.get("city")


def test_a_marker_right_after_a_malformed_call_begins_another() -> None:
    assert summarised(HERMES, f"<tool_call>oops <tool_call>{NOW}</tool_call>") == [
        "<tool_call>oops",
        "now:{}",
    ]


def test_a_missing_brace_or_garbage_after_the_arguments_loses_neither_call_nor_text() -> None:
    assert summarised(HERMES, f"<tool_call>{ONE[:-1]}\n</tool_call>") == [WEATHER]
    assert summarised(HERMES, f"<tool_call>{ONE} oops</tool_call>") == [WEATHER, "oops</tool_call>"]


def test_what_streams_out_is_certain_at_once() -> None:
    machine = parser(HERMES)
    assert machine.push("Hi <tool") == [Content(0, "Hi")]
    assert machine.push("s> x") == [Content(2, " <tools> x")]
    assert machine.push(' <tool_call>{"name": "get_weath') == []
    assert machine.push('er"') == [ToolCallStart(0, 0, "call_0", "get_weather")]
    assert machine.push(', "arguments": {"ci') == [ToolCallArguments(0, 0, '{"ci')]
    assert machine.push('ty": ') == [ToolCallArguments(0, 0, 'ty": ')]
    assert machine.push("1}") == [ToolCallArguments(0, 0, "1}")]
    assert machine.push("}\n</tool_call>\n") == []
    assert machine.flush() == []


def test_a_bare_call_starts_only_with_its_arguments() -> None:
    machine = parser(LLAMA)
    assert machine.push('{"name": "now", "param') == []
    assert machine.push('eters": {') == [
        ToolCallStart(0, 0, "call_0", "now"),
        ToolCallArguments(0, 0, "{"),
    ]


def test_an_answer_in_json_that_is_no_call_is_not_held_back() -> None:
    machine = parser(LLAMA)
    assert machine.push('{"answer"') == [Content(0, '{"answer"')]
    assert machine.push(": [1, ") == [Content(9, ": [1,")]
    assert summarised(LLAMA, '{"name": "now", "x": 1, "parameters": {}}') == [
        '{"name": "now", "x": 1, "parameters": {}}'
    ]


def test_a_call_that_is_cut_off_keeps_what_there_is_of_it() -> None:
    assert summarised(HERMES, '<tool_call>{"name": "get_weather", "arg') == ["get_weather:"]
    assert summarised(HERMES, '<tool_call>{"name": "get_weather", "arguments": {"ci') == ['get_weather:{"ci']
    text = '<tool_call>{"name": "now", "arguments": "{\\"a\\": \\"\\ud8'
    assert summarised(HERMES, text) == ['now:{"a": "']
    assert summarised(HERMES, f"<tool_call>{NOW}\n</tool_") == ["now:{}"]


def test_nothing_is_read_after_the_last_call_that_may_come() -> None:
    machine = parser(HERMES, max_calls=1)
    text = f"<tool_call>\n{ONE}\n</tool_call>\n<tool_call>\n{NOW}\n</tool_call>"
    end = text.index("}}") + 2
    fulls: list[bool] = []
    for part in ("", text[: end - 1], text[end - 1 : end]):
        machine.push(part)
        fulls.append(machine.full)
    assert fulls == [False, False, True]
    assert machine.push(text[end:]) == []
    assert machine.num_calls == 1
    assert summary(read(HERMES, [text], max_calls=1)) == [WEATHER]


_FRAGMENTS = st.sampled_from(
    [
        *("<tool_call>", "</tool_call>", "<|python_tag|>", "<|tool_call|>", "<|/tool_call|>"),
        *(
            "[TOOL_CALLS]",
            "functools",
            "<tool",
            "<|",
            "[",
            "]",
            "{",
            "}",
            '"',
            "\\",
            ",",
            ";",
            ":",
            " ",
            "\n",
        ),
        *('{"name": "now"', '"name": "get_weather"', '"arguments": ', '"parameters": ', "{}", CITY, ONE, NOW),
        *("<function=now>", "<function=get_weather>\n", "<parameter=city>", "</parameter>", "</function>"),
        *("null", "x", "é", "🙂", '"{\\"a\\": 1}"', "\\u00e9"),
    ]
)
_TEXTS = st.lists(_FRAGMENTS, max_size=14).map("".join)


@given(st.sampled_from(SYNTAXES), _TEXTS | st.text(max_size=30), st.lists(st.integers(1, 7)))
def test_any_text_gives_the_same_however_it_is_cut(syntax: ToolSyntax, text: str, sizes: list[int]) -> None:
    parts: list[str] = []
    rest = text
    for size in sizes:
        parts.append(rest[:size])
        rest = rest[size:]
    whole = read(syntax, [text])
    assert summary(read(syntax, [*parts, rest])) == summary(whole)
    assert summary(read(syntax, text)) == summary(whole)


@given(st.sampled_from(SYNTAXES), _TEXTS)
def test_content_is_the_text_at_its_place_and_in_order(syntax: ToolSyntax, text: str) -> None:
    at = 0
    for event in read(syntax, text):
        if isinstance(event, Content):
            assert event.start >= at
            assert text[event.start :].startswith(event.text)
            at = event.start + len(event.text)


@given(st.sampled_from(SYNTAXES), st.text("<tool_cal>| \nfunpythg", max_size=40))
def test_text_without_calls_comes_out_whole(syntax: ToolSyntax, text: str) -> None:
    assert "".join(summarised(syntax, text)) == text


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=5), _JSON, max_size=3), st.booleans(), st.sampled_from([None, 1]))
def test_any_arguments_arrive_as_they_were_written(
    arguments: dict[str, object], ascii_only: bool, indent: int | None
) -> None:
    written = json.dumps(arguments, ensure_ascii=ascii_only, indent=indent)
    text = f'<tool_call>\n{{"name": "now", "arguments": {written}}}\n</tool_call>'
    assert summarised(HERMES, text) == ["now:" + written]
