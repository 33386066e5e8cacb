"""The filters that chat templates may use, each within the budget of its rendering.

Jinja's own where what they make is not much longer than what they are given; our own where it may be. Filters that no
chat template needs, and whose size is the template's to choose, do not exist: `center`, `slice`, `wordwrap`, `random`…
A template that names one is refused when it is loaded.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from jinja2 import pass_context
from jinja2.exceptions import FilterArgumentError, SecurityError
from jinja2.filters import FILTERS, make_attrgetter
from jinja2.runtime import Context

from headway.models.template_budget import OBJECT, Budget

BUDGET: Final = "\0budget"
"""Where a context keeps its budget: under a name that no template can write."""

_ON_TEXT: Final = ("capitalize", "lower", "title", "trim", "truncate", "upper", "wordcount")
_ESCAPING: Final = {"e": 6, "escape": 6, "forceescape": 6, "urlencode": 12}  # one character becomes so many
_ON_ITEMS: Final = (
    "groupby", "map", "max", "min", "reject", "rejectattr", "select", "selectattr", "sort", "unique",
)  # fmt: skip
_OTHERS: Final = (
    "abs", "attr", "count", "d", "default", "dictsort", "first", "float", "int", "items", "last", "length", "reverse",
    "safe",
)  # fmt: skip
_MAX_INDENT: Final = 64  # columns, of one level; a wider one is a string of its own
_MAX_DIGITS: Final = 300  # a float has no more


def budget_of(context: Context) -> Budget:
    """Return the budget of the rendering that `context` belongs to."""
    budget = context.parent[BUDGET]
    assert isinstance(budget, Budget)
    return budget


def bounded_filters() -> dict[str, Callable[..., Any]]:
    """Return the filters by name."""
    filters = {name: _bounded(name) for name in _OTHERS}
    filters |= {name: _bounded(name, on_items=True) for name in _ON_ITEMS}
    filters |= {name: _bounded(name, on_text=True) for name in _ON_TEXT}
    filters |= {name: _bounded(name, on_text=True, factor=factor) for name, factor in _ESCAPING.items()}
    return filters | {
        "format": _format,
        "indent": _indent,
        "join": _join,
        "list": _list,
        "replace": _replace,
        "round": _round,
        "string": _string,
        "sum": _sum,
        "tojson": _to_json,
    }


def paying(budget: Budget, units: int, items: Iterator[Any]) -> Iterator[Any]:
    """Yield `items`, each for a price."""
    for item in items:
        budget.charge(units)
        yield item


def _bounded(
    name: str, *, on_text: bool = False, on_items: bool = False, factor: int = 0
) -> Callable[..., Any]:
    """Return Jinja's filter, which pays for the operation, for each item that it looks at, and for its result."""
    original = FILTERS[name]
    wants = getattr(original, "jinja_pass_arg", None)
    wanted = None if wants is None else wants.name

    @pass_context
    def run(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        budget = budget_of(context)
        budget.charge(OBJECT)
        if on_text:
            value = value if isinstance(value, str) else budget.text(value)
            budget.charge(factor * len(value))
        if on_items and value:  # nothing, or something undefined, is the filter's affair
            value = paying(budget, OBJECT, iter(value))
        first = {"environment": context.environment, "eval_context": context.eval_ctx, "context": context}
        leading = () if wanted is None else (first[wanted],)
        return budget.paid(original(*leading, value, *args, **kwargs))

    return run


def join(budget: Budget, separator: object, items: Iterable[object]) -> str:
    """Return the items' texts with the separator's between them."""
    between = budget.text(separator)
    parts: list[str] = []
    for item in items:
        budget.charge(OBJECT + len(between))
        parts.append(budget.text(item))
    return between.join(parts)


def replace(budget: Budget, text: str, old: str, new: str, count: int = -1) -> str:
    """Return `text` with up to `count` occurrences of `old` replaced, as `str.replace` does."""
    found = text.count(old) if count < 0 else min(count, text.count(old))
    budget.charge(len(text) + found * len(new))
    return text.replace(old, new, count)


def percent(budget: Budget, template: str, values: Any) -> str:
    """Return `template % values`, which may repeat values but not pad them to a width of its choice."""
    digits = 0
    in_field = False
    for char in template:
        digits = digits + 1 if char.isdigit() else 0
        in_field = char == "%" or (in_field and not char.isalpha())
        if in_field and (digits > 2 or char == "*"):
            raise SecurityError("it pads a value to more than 99 characters")
    budget.charge(len(template) + template.count("%") * (100 + budget.text_units(values)))
    result: str = template % values
    return result


@pass_context
def _format(context: Context, value: Any, *args: Any, **kwargs: Any) -> str:
    if args and kwargs:
        raise FilterArgumentError("can't handle positional and keyword arguments at the same time")
    budget = budget_of(context)
    return percent(budget, budget.text(value), kwargs or args)


@pass_context
def _indent(
    context: Context, value: Any, width: int | str = 4, first: bool = False, blank: bool = False
) -> str:
    budget = budget_of(context)
    text = budget.text(value)
    if not isinstance(width, str) and width > _MAX_INDENT:
        raise SecurityError(f"it indents by more than {_MAX_INDENT} columns")
    margin = width if isinstance(width, str) else " " * width
    num_lines = 2 + sum(map(text.count, "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"))
    budget.charge(num_lines * (OBJECT + len(margin)) + len(text))
    result: str = FILTERS["indent"](text, margin, first, blank)
    return result


@pass_context
def _join(context: Context, value: Any, d: Any = "", attribute: str | int | None = None) -> str:
    if attribute is not None:
        value = map(make_attrgetter(context.environment, attribute), value)
    return join(budget_of(context), d, value)


@pass_context
def _list(context: Context, value: Any) -> list[Any]:
    budget = budget_of(context)
    items: list[Any] = []
    for item in value:
        budget.charge(OBJECT)
        items.append(item)
    return budget.paid(items)  # type: ignore[no-any-return]


@pass_context
def _replace(context: Context, value: Any, old: Any, new: Any, count: int | None = None) -> str:
    budget = budget_of(context)
    return replace(
        budget, budget.text(value), budget.text(old), budget.text(new), -1 if count is None else count
    )


@pass_context
def _round(context: Context, value: Any, precision: int = 0, method: str = "common") -> Any:
    if abs(precision) > _MAX_DIGITS:
        raise SecurityError(f"it rounds to more than {_MAX_DIGITS} digits")
    budget_of(context).charge(OBJECT)
    return FILTERS["round"](value, precision, method)


@pass_context
def _string(context: Context, value: Any) -> str:
    return budget_of(context).text(value)


@pass_context
def _sum(context: Context, value: Any, attribute: str | int | None = None, start: Any = 0) -> Any:
    budget = budget_of(context)
    total = start
    if attribute is not None:
        value = map(make_attrgetter(context.environment, attribute), value)
    for item in value:
        budget.charge(budget.weight(total) + budget.weight(item))
        total = total + item
    return total


@pass_context
def _to_json(
    context: Context,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    budget = budget_of(context)
    width = len(indent) if isinstance(indent, str) else (indent or 0)
    if width > _MAX_INDENT:
        raise SecurityError(f"it indents by more than {_MAX_INDENT} columns")
    between = sum(map(len, separators or (", ", ": ")))
    budget.charge(_json_units(budget, value, width, between, 12 if ensure_ascii else 6))
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _json_units(budget: Budget, value: Any, indent: int, between: int, factor: int) -> int:
    """Return an upper bound of what a value takes as JSON; every value has a line, and a margin by its depth, to itself."""
    budget.charge(budget.weight(value))
    total = 0
    stack: list[tuple[Any, int]] = [(value, 0)]
    while stack:
        item, depth = stack.pop()
        total += OBJECT + between + 2 * depth * indent
        if isinstance(item, str):
            total += factor * len(item)
        elif isinstance(item, int):
            total += item.bit_length()
        elif isinstance(item, Mapping):
            for key, inner in item.items():
                stack += [(key, depth + 1), (inner, depth + 1)]
        elif isinstance(item, (list, tuple)):
            stack.extend((inner, depth + 1) for inner in item)
    return total
