"""Chat templates that take tools, one per syntax of calls, as short as they can be; and a vocabulary with their markers."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from headway.models.chat_template import ChatTemplate
from support.byte_text import EOS_ID, ByteTokenizer

_TOOLS = "{% if tools %}<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools>{% endif %}"


def _turns(call: str) -> str:
    """Every message, with `call` for each of its calls `c`."""
    return (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
        "{% for c in m.tool_calls or [] %}" + call + "{% endfor %}"
        "{% if m.role == 'tool' %} (of {{ m.tool_call_id }} {{ m.name }}){% endif %}</>{% endfor %}<assistant>"
    )


HERMES_SOURCE: Final = _TOOLS + _turns(
    '<tool_call>\n{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>'
)
CODER_SOURCE: Final = _TOOLS + _turns(
    "<tool_call>\n<function={{ c.function.name }}>\n{% for k, v in c.function.arguments | items %}"
    "<parameter={{ k }}>\n{{ v }}\n</parameter>\n{% endfor %}</function>\n</tool_call>"
)
LLAMA_SOURCE: Final = _TOOLS + _turns(
    '{"name": "{{ c.function.name }}", "parameters": {{ c.function.arguments | tojson }}}<|eot_id|>'
)
MISTRAL_SOURCE: Final = _TOOLS + _turns(
    "{% if c.id | length != 9 %}{{ raise_exception('nine') }}{% endif %}[TOOL_CALLS] [{{ c.function | tojson }}]"
)
PHI_SOURCE: Final = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% if m.role == 'system' and m.tools is defined %}<|tool|>{{ m.tools }}<|/tool|>{% endif %}</>{% endfor %}<assistant>"
)
NO_TOOLS_SOURCE: Final = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}<assistant>"

MARKS: Final = (
    *("<tool_call>", "</tool_call>", "<|python_tag|>", "<|tool_call|>", "<|/tool_call|>", "[TOOL_CALLS]"),
)


class MarkedTokenizer(ByteTokenizer):
    """A byte per token, 256 ends an answer, and `marks` from 257 on; all but those of `text_marks` are control tokens."""

    def __init__(self, marks: Sequence[str] = MARKS, text_marks: Sequence[str] = MARKS[:2]) -> None:
        self._marks = tuple(marks)
        self._text_ids = {EOS_ID + 1 + self._marks.index(mark) for mark in text_marks if mark in marks}
        self.vocab_size = EOS_ID + 1 + len(marks)

    def encode(self, text: str, *, parse_special: bool = True, add_bos: bool = True) -> list[int]:
        del add_bos
        ids: list[int] = []
        while text:
            for index, mark in enumerate(self._marks):
                token_id = EOS_ID + 1 + index
                if text.startswith(mark) and (parse_special or token_id in self._text_ids):
                    ids.append(token_id)
                    text = text[len(mark) :]
                    break
            else:
                ids += text[0].encode()
                text = text[1:]
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        return (
            self._marks[token_id - EOS_ID - 1].encode()
            if token_id > EOS_ID
            else super().token_bytes(token_id)
        )

    def is_special(self, token_id: int) -> bool:
        return token_id >= EOS_ID and token_id not in self._text_ids


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source)


def function(name: str, parameters: Mapping[str, Any] | None = None, **fields: object) -> dict[str, Any]:
    """A tool as a request has it."""
    described = {"name": name, **({} if parameters is None else {"parameters": parameters}), **fields}
    return {"type": "function", "function": described}


CITY_SCHEMA: Final = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: Final = function("get_weather", CITY_SCHEMA, description="Tell the weather.")
NOW: Final = function("now")
