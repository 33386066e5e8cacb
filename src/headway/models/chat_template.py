"""Renders a conversation with the Jinja template that a model file carries, in a sandbox.

The environment is the one that model authors test their templates against, that of `transformers` ("Writing a chat
template" in its documentation): block trimming, loop controls, `raise_exception`, `strftime_now`, `tojson` that writes
plain JSON, and the `generation` tag, which marks text for training and has no effect here. Messages are data: nothing in
them is ever run as a template. Which roles exist is the template's affair; the wire maps `developer` to `system` before.
A file without a template is refused rather than guessed at.

A template comes with the weights, from anywhere, so it is not trusted: what a rendering makes, and how long it takes, is
bounded by `template_budget`, as `template_sandbox` enforces; so are the output, and the turns of all `range`s together.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
from jinja2.ext import Extension
from jinja2.parser import Parser

from headway.core.errors import InvalidRequest, ModelFileError
from headway.models.template_budget import Budget
from headway.models.template_filters import BUDGET
from headway.models.template_sandbox import BoundedEnvironment

MAX_SOURCE_CHARS = 256 * 1024
"""Ten times the longest templates published; compiling as much takes two seconds."""
MAX_OUTPUT_CHARS = 64 * 1024 * 1024
"""Eight times the largest request body: room for whatever a template adds around every message."""
MAX_RANGE_TURNS = 1_000_000
"""About a second of Jinja's loop; no template needs more than a few turns per message."""


class ChatTemplate:
    """One model's template. Immutable; `render` may be called from any thread.

    source     the template's text
    bos_token, eos_token   what the template may refer to by these names
    now        the clock of templates that ask for a date; no other rendering depends on time
    """

    def __init__(
        self,
        source: str,
        *,
        bos_token: str = "",
        eos_token: str = "",
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        """Raises ModelFileError for a template that does not parse."""
        if len(source) > MAX_SOURCE_CHARS:
            raise ModelFileError(f"The file's chat template has more than {MAX_SOURCE_CHARS} characters.")
        environment = BoundedEnvironment(_GenerationTag)
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda format: now().strftime(format)  # noqa: A006  the templates' word
        try:
            self._template = environment.from_string(source)
        except TemplateSyntaxError as error:
            raise ModelFileError(
                f"The file's chat template does not parse: {error.message} (line {error.lineno})."
            ) from error
        # Jinja compiles to Python, which has limits of its own: on depth, nested loops, digits of a number.
        except (
            TemplateError,
            SyntaxError,
            ValueError,
            ArithmeticError,
            RecursionError,
            MemoryError,
        ) as error:
            raise ModelFileError(f"The file's chat template does not compile: {error}.") from error
        self.source = source
        self._names = {"bos_token": bos_token, "eos_token": eos_token}

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **extra: Any,
    ) -> str:
        """Return the prompt of a conversation.

        messages               what the caller sent, oldest first; not changed
        add_generation_prompt  end where the assistant's answer begins
        tools                  function descriptions; a template that knows none ignores them
        extra                  further names the template may use (`enable_thinking`)

        Raises InvalidRequest with the template's own words when it refuses the messages or cannot take them.
        """
        values: dict[str, Any] = self._names | {
            "messages": [dict(message) for message in messages],
            "add_generation_prompt": add_generation_prompt,
            "tools": None if tools is None else list(tools),
            "range": _RangeBudget(MAX_RANGE_TURNS),
        }
        values[BUDGET] = Budget([messages, tools, extra])
        parts: list[str] = []
        num_chars = 0
        try:
            for part in self._template.generate(**{**extra, **values}):
                parts.append(part)
                num_chars += len(part)
                if num_chars > MAX_OUTPUT_CHARS:
                    raise SecurityError(f"its output exceeds {MAX_OUTPUT_CHARS} characters")
        except _Refused as error:
            raise InvalidRequest(
                f"The model's chat template refuses these messages: {error.message}", param="messages"
            ) from error
        # A template meets messages it was not written for with any of these (None + str, a missing key, depth).
        except (
            TemplateError,
            TypeError,
            ValueError,
            LookupError,
            ArithmeticError,
            RecursionError,
            MemoryError,
        ) as error:
            raise InvalidRequest(
                f"The model's chat template cannot render these messages: {error}", param="messages"
            ) from error
        return "".join(parts)


class _Refused(TemplateError):
    """What `raise_exception` raises."""


def _raise_exception(message: object) -> None:
    raise _Refused(str(message))


class _RangeBudget:
    """Jinja's `range` with one budget for all its turns in a rendering."""

    def __init__(self, turns: int) -> None:
        self._turns_left = turns

    def __call__(self, *bounds: int) -> Iterator[int] | Sequence[int]:
        turns = range(*bounds)
        self._turns_left -= len(turns)
        if self._turns_left < 0:
            raise SecurityError(f"its loops over range() take more than {MAX_RANGE_TURNS} turns")
        return turns


class _GenerationTag(Extension):
    """`{% generation %} … {% endgeneration %}` renders as what is inside it."""

    tags = {"generation"}  # noqa: RUF012  Jinja declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
