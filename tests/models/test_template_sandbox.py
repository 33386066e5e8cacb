import tracemalloc
from typing import Any

import pytest
from jinja2.exceptions import SecurityError

from headway.core.errors import InvalidRequest, ModelFileError
from headway.models.chat_template import ChatTemplate
from headway.models.template_budget import Budget

USER = [{"role": "user", "content": "Hi"}]
REFUSED = "cannot render these messages: it "


def rendered(source: str, **values: Any) -> str:
    return ChatTemplate(source).render(USER, **values)


BLOWUPS = {
    "times": "{{ 'a' * 4000000000 }}",
    "times list": "{{ ([1] * 4000000000) | length }}",
    "times text of a request": "{{ messages[0].content * 1000000000 }}",
    "doubling": "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "doubling ~": "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "doubling %": "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = '%s%s' % (n.x, n.x) %}{% endfor %}",
    "doubling join": "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = [n.x, n.x] | join %}{% endfor %}",
    "doubling lists": "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "sharing": "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
    "sharing dicts": "{% set n = namespace(x={}) %}{% for i in range(99) %}"
    "{% set n.x = {'a': n.x, 'b': n.x} %}{% endfor %}{{ n.x | tojson }}",
    "sharing dict()": "{% set n = namespace(x={}) %}{% for i in range(99) %}{% set n.x = dict(a=n.x, b=n.x) %}{% endfor %}",
    "keeping": "{% set n = namespace(x=[]) %}{% for i in range(9999) %}"
    "{% set n.x = [n.x, 'ab' * 999] %}{% endfor %}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "big numbers": "{% set n = namespace(x=9) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "percent width": "{{ '%1000000000d' % 1 }}",
    "percent star": "{{ '%*d' % (1000000000, 1) }}",
    "percent repeated": "{{ ('%(a)s' * 1000) % {'a': 'b' * 100000} }}",
    "format filter": "{{ '%1000000000d' | format(1) }}",
    "str.format": "{{ '{:1000000000}'.format(1) }}",
    "str.format nested": "{{ '{:{}}'.format(1, 1000000000) }}",
    "str.format repeated": "{{ ('{0}' * 1000).format('b' * 100000) }}",
    "ljust": "{{ 'a'.ljust(1000000000) }}",
    "zfill": "{{ 'a'.zfill(1000000000) }}",
    "expandtabs": "{{ '\t'.expandtabs(1000000000) }}",
    "translate": "{{ 'a'.translate({97: 'b'}) }}",
    "to_bytes": "{{ (5).to_bytes(1000000000, 'big') }}",
    "fromkeys": "{{ dict.fromkeys([1]) }}",
    "encode": "{{ 'a'.encode() }}",
    "replace method": "{{ ('a' * 100000).replace('', 'b' * 100000) }}",
    "replace filter": "{{ ('a' * 100000) | replace('a', 'b' * 100000) }}",
    "join method": "{{ ('b' * 100000).join('a' * 100000) }}",
    "join filter": "{{ ('a' * 100000) | join('b' * 100000) }}",
    "split": "{{ ('a,' * 4000000).split(',') | length }}",
    "list of text": "{{ ('a' * 8000000) | list | length }}",
    "indent": "{{ ('\n' * 100000) | indent('b' * 100000) }}",
    "indent width": "{{ 'a' | indent(1000000000, true) }}",
    "tojson indent": "{{ [1] | tojson(indent=1000000000) }}",
    "tojson depth": "{% set n = namespace(x=[1] * 100000) %}{% for i in range(200) %}{% set n.x = [n.x] %}{% endfor %}"
    "{{ n.x | tojson(indent=64) }}",
    "round": "{{ 1.5 | round(1000000000, 'ceil') }}",
    "sum": "{% set l = [[1] * 1000] * 2000 %}{{ (l | sum(start=[])) | length }}",
    "nested loops": "{% for a in [1] * 999 %}" * 4 + "{% endfor %}" * 4,
    "loops over text": "{% for a in 'a' * 999999 %}{% for b in 'a' * 999999 %}{% endfor %}{% endfor %}",
    "recursive loop": "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = n.x %}{% endfor %}"
    "{% for a in [1, 2] recursive %}{{ loop([1, 2]) if loop.depth < 20 }}{% endfor %}",
    "macro doubling": "{% macro m(d) %}{% if d %}{{ m(d - 1) }}{{ m(d - 1) }}{% endif %}{% endmacro %}{{ m(20) }}",
    "text in macros": "{% macro m() %}" + "x" * 10000 + "{% endmacro %}"
    "{% macro k() %}{% for i in range(99999) %}{{ m() }}{% endfor %}{% endmacro %}{{ k() | length }}",
    "text in loops": "{% set x %}{% for i in range(999999) %}" + "x" * 10000 + "{% endfor %}{% endset %}",
    "output kept": "{% set b = 'a' * 1000000 %}{% set x %}{% for i in range(999999) %}{{ b }}{% endfor %}{% endset %}",
    "slices": "{% set b = [1] * 100000 %}{% set n = namespace(x=[]) %}"
    "{% for i in range(99999) %}{% set n.x = [n.x, b[1:]] %}{% endfor %}",
    "selecting nothing": "{{ ('a' * 30000) | select('equalto', 'b') | list }}",
    "sorting": "{{ ('a' * 30000) | sort | first }}",
    "map": "{{ (['a' * 1000] * 400) | map('replace', 'a', 'b' * 1000) | list | length }}",
    "call block": "{% macro m() %}{{ caller() }}{{ caller() }}{% endmacro %}"
    "{% set n = namespace(x='ab') %}{% for i in range(99) %}"
    "{% set x %}{% call m() %}{{ n.x }}{% endcall %}{% endset %}{% set n.x = x %}{% endfor %}",
    "blocks": "{% set b = 'a' * 1000000 %}{% block k %}" + "x" * 10000 + "{% endblock %}"
    "{% set x %}{% for i in range(99999) %}{{ self.k() }}{% endfor %}{% endset %}",
}


@pytest.mark.parametrize("source", BLOWUPS.values(), ids=BLOWUPS.keys())
def test_nothing_makes_more_than_the_budget(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.models.template_budget.BASE_UNITS", 200_000)
    template = ChatTemplate(source)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest, match=REFUSED):
            template.render(USER)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16e6


@pytest.mark.parametrize(
    "name", ["center(9)", "slice(3)", "batch(3)", "wordwrap(3)", "urlize", "xmlattr", "random", "pprint"]
)
def test_filters_that_no_template_needs_are_refused_when_it_is_loaded(name: str) -> None:
    with pytest.raises(ModelFileError, match="No filter named"):
        ChatTemplate("{{ 'a' | " + name + " }}")


def test_lipsum_does_not_exist() -> None:
    with pytest.raises(InvalidRequest, match="'lipsum' is undefined"):
        rendered("{{ lipsum(1000000) }}")


def test_a_namespace_that_holds_itself_can_be_written() -> None:
    assert rendered("{% set n = namespace() %}{% set n.n = n %}{{ n }}") == "<Namespace>"


def test_time_is_bounded() -> None:
    now = iter(range(0, 1000, 10))
    budget = Budget([], lambda: float(next(now)))
    for _ in range(3):
        budget.charge(1)
    with pytest.raises(SecurityError, match="longer than 30 seconds"):
        budget.charge(1)


def test_a_long_request_may_be_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.models.template_budget.BASE_UNITS", 1000)
    source = "{% for m in messages %}{{ '<' + m.role + '>' + m.content | trim + '\n' }}{% endfor %}"
    messages = [{"role": "user", "content": "word " * 2000}] * 50
    assert len(ChatTemplate(source).render(messages)) == 50 * (9_999 + 7)


def test_a_template_has_a_longest_length() -> None:
    with pytest.raises(ModelFileError, match="more than 262144 characters"):
        ChatTemplate("x" * (256 * 1024 + 1))


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ 'a' ~ 1 ~ none ~ ['b'] }}", "a1None['b']"),
        ("{{ '%s-%05.1f-%(a)s' }}", "%s-%05.1f-%(a)s"),
        ("{{ '%s-%05.1f' % ('a', 2.25) }}", "a-002.2"),
        ("{{ '{}-{:>3}-{x[0]}'.format('a', 5, x=['b']) }}", "a-  5-b"),
        ("{{ 'a,b,,c'.split(',', 2) }}", "['a', 'b', ',c']"),
        ("{{ ' a b '.split() | join('|') }}", "a|b"),
        ("{{ 'aXbX'.replace('X', '--', 1) }}|{{ 'aa' | replace('a', 'b') }}", "a--bX|bb"),
        ("{{ '-'.join(['a', 'b']) }}", "a-b"),
        ("{{ 'a\nb\n\nc' | indent(2) }}", "a\n  b\n\n  c"),
        ("{{ 'a\nb' | indent('> ', true) }}", "> a\n> b"),
        ("{{ [1, 2.5] | sum }}|{{ [{'n': 1}, {'n': 2}] | sum('n') }}", "3.5|3"),
        ("{{ messages | map(attribute='role') | list }}", "['user']"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        (
            "{{ {'b': 1, 'a': [1, {}]} | tojson(indent=2, sort_keys=true) }}",
            '{\n  "a": [\n    1,\n    {}\n  ],\n  "b": 1\n}',
        ),
        ("{{ {'b': 1} | tojson(separators=(',', ':')) }}", '{"b":1}'),
        (
            "{% for k, v in {'b': 1, 'a': 2} | dictsort %}{{ k }}{{ v }}{{ loop.last }}{% endfor %}",
            "a2Falseb1True",
        ),
        (
            "{% for m in messages[::-1] %}{{ loop.index0 }}{{ loop.length }}{{ loop.first }}{% endfor %}",
            "01True",
        ),
        ("{% for a in [1, [2, 3]] recursive %}{{ loop(a) if a is iterable else a }}{% endfor %}", "123"),
        (
            "{% macro m(a, b=2) %}{{ a }}{{ b }}{{ varargs }}{% endmacro %}{{ m(1) }}{{ m(1, 3, 4) }}",
            "12()13(4,)",
        ),
        ("{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}x{% endcall %}", "[x]"),
        ("{% set n = namespace(a=1) %}{% set n.a = n.a + 1 %}{{ n.a }}", "2"),
        (
            "{{ 7 // 2 }} {{ 7 % 4 }} {{ 2 ** 10 }} {{ 3 * 'ab' }} {{ [1] + [2] }} {{ -7 / 2 }}",
            "3 3 1024 ababab [1, 2] -3.5",
        ),
        ("{{ 2.55 | round(1) }} {{ 7.1 | round | int }} {{ '12' | int + 1 }}", "2.5 7 13"),
        (
            "{{ '<a>' | e }} {{ 'a b' | urlencode }} {{ 'aB' | upper }} {{ ' x ' | trim }}|",
            "&lt;a&gt; a%20b AB x|",
        ),
        ("{{ undefined_name }}|{{ undefined_name | default('d') }}|{{ none }}|{{ true }}", "|d|None|True"),
        ("{% filter upper %}a{{ 'b' }}{% endfilter %}", "AB"),
        ("{{ {'a': 1}.items() | list }} {{ {'a': 1}.get('b', 'c') }}", "[('a', 1)] c"),
        (
            "{% for c in 'ab' %}{{ c }}{% else %}none{% endfor %}{% for c in [] %}{% else %}none{% endfor %}",
            "abnone",
        ),
        ("{% for i in range(3) if i != 1 %}{{ i }}{% endfor %}", "02"),
        ("{{ '<think>' in messages[0].content }} {{ messages[0]['content'].startswith('H') }}", "False True"),
    ],
)
def test_what_templates_do_works_as_jinja_does_it(source: str, text: str) -> None:
    assert rendered(source) == text


# Templates in the style of published ones

HERMES_TOOLS = """\
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}{{- messages[0]['content'] + '\n\n' }}{%- endif %}
    {{- '# Tools\n<tools>' }}
    {%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\n</tools><|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'assistant' and message.tool_calls %}
        {{- '<|im_start|>assistant' }}
        {%- if message.content %}{{- '\n' + message.content }}{%- endif %}
        {%- for call in message.tool_calls %}
            {%- if call.function is defined %}{%- set call = call.function %}{%- endif %}
            {{- '\n<tool_call>\n{"name": "' + call.name + '", "arguments": ' }}
            {{- call.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.index0 == 0 or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- elif message.role != 'system' or not tools %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""

LLAMA_TOOLS = """\
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] | trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set system = '' %}{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\n\nToday: ' + strftime_now('%d %b %Y') + '\n\n' }}
{%- if tools is not none %}{%- for t in tools %}{{- t | tojson(indent=4) }}{{- '\n\n' }}{%- endfor %}{%- endif %}
{{- system }}{{- '<|eot_id|>' }}
{%- for message in messages %}
    {%- if 'tool_calls' in message %}
        {%- if message.tool_calls | length != 1 %}
            {{- raise_exception('This model only supports single tool-calls at once!') }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson }}{{- '}<|eot_id|>' }}
    {%- elif message.role in ('tool', 'ipython') %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\n\n' + message.content + '<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"""

PHI_TOOLS = """\
{% for message in messages %}{% if message['role'] == 'system' and 'tools' in message and message['tools'] is not none %}\
{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + message['tools'] + '<|/tool|><|end|>' }}{% else %}\
{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endif %}{% endfor %}\
{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}"""

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
CALLED: list[dict[str, Any]] = [
    {"role": "user", "content": "Q "},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"é": 1}}}],
    },
    {"role": "tool", "tool_call_id": "1", "content": "R"},
]


def test_tools_in_the_style_of_hermes() -> None:
    assert ChatTemplate(HERMES_TOOLS).render(CALLED, tools=TOOLS) == (
        "<|im_start|>system\n# Tools\n<tools>\n"
        '{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}\n</tools><|im_end|>\n'
        "<|im_start|>user\nQ <|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "f", "arguments": {"é": 1}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\nR\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


def test_tools_in_the_style_of_llama() -> None:
    template = ChatTemplate(LLAMA_TOOLS, bos_token="<s>")
    text = template.render([{"role": "system", "content": "S"}, *CALLED], tools=TOOLS)
    assert text.startswith("<s><|start_header_id|>system<|end_header_id|>\n\nToday: ")
    assert '\n    "type": "function",\n' in text
    assert text.endswith(
        "<|start_header_id|>user<|end_header_id|>\n\nQ<|eot_id|>"
        '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "f", "parameters": {"é": 1}}<|eot_id|>'
        "<|start_header_id|>ipython<|end_header_id|>\n\nR<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    two = [{**CALLED[1], "tool_calls": CALLED[1]["tool_calls"] * 2}]
    with pytest.raises(InvalidRequest, match="single tool-calls"):
        template.render([*USER, *two])


def test_tools_in_the_style_of_phi() -> None:
    messages = [{"role": "system", "content": "S", "tools": "[]"}, *USER]
    assert (
        ChatTemplate(PHI_TOOLS).render(messages)
        == "<|system|>S<|tool|>[]<|/tool|><|end|><|user|>Hi<|end|><|assistant|>"
    )
