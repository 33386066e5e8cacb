"""A Jinja environment in which a rendering cannot use more than its budget, whatever the template says.

What a template can do is a closed list, and each item pays before it makes anything large (`template_budget`): operators
are intercepted, filters are our list (`template_filters`), calls reach only methods on a list, loops and macros pay by
the turn for the text in their bodies, and everything that is written out pays once more. It knows no chat.

Jinja's ImmutableSandboxedEnvironment keeps attributes and writes out of reach. What it does not bound: the size of `'a' *
10**9`, of `~`, of filters and string methods (its documentation, "Sandbox", leaves resources to the application).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from string import Formatter
from typing import Any, Final

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import LoopControlExtension
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Cycler, Joiner, Namespace
from jinja2.visitor import NodeTransformer

from headway.models.template_budget import CALL, OBJECT, Budget
from headway.models.template_filters import bounded_filters, budget_of, join, paying, percent, replace

_MAX_INTEGER_BITS: Final = 4096
# Filters that only the transformed template names; no template can write the space.
_TURNS, _PAID, _CONCAT, _BODY = " turns", " paid", " concat", " body"

_TEXT_METHODS: Final = frozenset(
    {
        "capitalize", "casefold", "count", "endswith", "find", "index", "isalnum", "isalpha", "isascii", "isdecimal",
        "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "lower", "lstrip", "partition",
        "removeprefix", "removesuffix", "rfind", "rindex", "rpartition", "rstrip", "startswith", "strip", "swapcase",
        "title", "upper",
    }
)  # fmt: skip
_SPLITTING: Final = frozenset({"split", "rsplit", "splitlines"})
_METHODS: Final[Mapping[type[Any], frozenset[str]]] = {
    dict: frozenset({"copy", "get", "items", "keys", "values"}),
    list: frozenset({"copy", "count", "index"}),
    tuple: frozenset({"count", "index"}),
}


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The environment of `transformers`' chat templates (block trimming, loop controls), within budgets.

    Whoever renders gives the context a `Budget` under `template_filters.BUDGET`.
    """

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self, *extensions: Any) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[LoopControlExtension, *extensions],
            finalize=_write,
        )
        self.num_chars = 0  # of the text in all templates parsed
        self.filters = bounded_filters() | {_TURNS: _turns, _PAID: _paid, _CONCAT: _concat, _BODY: _body}
        self.globals = {"dict": dict, "cycler": Cycler, "joiner": Joiner, "namespace": _Namespace}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        self.num_chars += _num_chars(tree)
        bounded = _Bounding(self.num_chars).visit(tree)
        assert isinstance(bounded, nodes.Template)
        bounded.set_environment(self)
        return bounded

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Carry out an operator, paid for before."""
        budget = budget_of(context)
        budget.charge(OBJECT)
        if operator == "%" and isinstance(left, str):
            return percent(budget, left, right)
        if operator == "*":
            self._charge_repetition(budget, left, right)
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() * abs(right))
        elif operator == "+":
            budget.charge(budget.weight(left) + budget.weight(right))
        elif isinstance(left, bytes):
            raise SecurityError("it computes with bytes")
        return self.binop_table[operator](left, right)

    def _charge_repetition(self, budget: Budget, left: Any, right: Any) -> None:
        times, value = (left, right) if isinstance(left, int) else (right, left)
        if isinstance(times, int) and isinstance(value, int):
            _check_bits(times.bit_length() + value.bit_length())
        elif isinstance(times, int):
            budget.charge(budget.weight(value) * max(times, 0))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Call something that a template may call, and pay for what it returns."""
        budget = budget_of(__context)
        budget.charge(CALL)
        if isinstance(__obj, LoopContext) and args:  # a recursive loop's call, with the next items
            args = (_turns(__context, args[0], __self.num_chars), *args[1:])
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str) or isinstance(__obj, _Format):
            for name in ("_loop_vars", "_block_vars"):  # what compiled templates pass to every call
                kwargs.pop(name, None)
        if isinstance(__obj, _Format):
            return __obj.paid(budget, args, kwargs)
        if isinstance(owner, str):
            return budget.paid(_call_text(budget, owner, __obj.__name__, args, kwargs))
        if isinstance(owner, (bytes, int, float, list, tuple, dict, set, frozenset, type)):
            allowed = _METHODS.get(type(owner), frozenset())
            if __obj.__name__ not in allowed:
                raise SecurityError(
                    f"it calls {type(owner).__name__}.{__obj.__name__}, which a chat template may not"
                )
        return budget.paid(super().call(__context, __obj, *args, **kwargs))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return `str.format` as something that `call` pays for."""
        wrapped = super().wrap_str_format(value)
        return None if wrapped is None else _Format(value.__self__, wrapped)


class _Format:
    """A string's `format`: only `BoundedEnvironment.call` runs it."""

    def __init__(self, text: str, run: Callable[..., str]) -> None:
        self.text = text
        self.run = run

    def __call__(self, *_args: Any, **_kwargs: Any) -> str:
        raise SecurityError("it calls str.format where it cannot be paid for")

    def paid(self, budget: Budget, args: Any, kwargs: Any) -> str:
        """Return the formatted text, whose fields may not be padded to a width of the template's choice."""
        fields = [spec for _, name, spec, _ in Formatter().parse(self.text) if name is not None]
        if any("{" in (spec or "") or re.search("[0-9]{3}", spec or "") for spec in fields):
            raise SecurityError("it pads a value to more than 99 characters")
        longest = budget.text_units([*args, *kwargs.values()])
        budget.charge(len(self.text) + len(fields) * (100 + longest))
        return self.run(*args, **kwargs)


class _Bounding(NodeTransformer):
    """Makes loops, macros, literals, slices and `~` of a template pay. `num_chars`: all of its text."""

    def __init__(self, num_chars: int) -> None:
        self._num_chars = num_chars

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802  Jinja's name
        num_chars = None if node.recursive else _num_chars(node)
        self.generic_visit(node)
        node.iter = _filter(
            _TURNS, node.iter, nodes.Const(self._num_chars if num_chars is None else num_chars)
        )
        return node

    def _visit_body(self, node: Any) -> nodes.Node:
        pay = nodes.Output([_filter(_BODY, nodes.Const(_num_chars(node)))], lineno=node.lineno)
        self.generic_visit(node)
        node.body.insert(0, pay)
        return node  # type: ignore[no-any-return]

    visit_Macro = visit_CallBlock = visit_Block = _visit_body  # noqa: N815

    def _visit_made(self, node: Any) -> nodes.Node:
        constant = all(isinstance(part, nodes.Const) for part in node.iter_child_nodes())
        self.generic_visit(node)
        return node if constant or getattr(node, "ctx", "load") != "load" else _filter(_PAID, node)

    visit_List = visit_Dict = visit_Tuple = _visit_made  # noqa: N815

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filter(_PAID, node) if isinstance(node.arg, nodes.Slice) else node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filter(_CONCAT, nodes.Tuple(node.nodes, "load", lineno=node.lineno))


def _num_chars(node: nodes.Node) -> int:
    return sum(len(part.data) for part in node.find_all(nodes.TemplateData))


def _filter(name: str, node: Any, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)


class _Namespace(Namespace):
    """Jinja's, which writes itself without what it holds: namespaces that hold each other would have no end."""

    def __repr__(self) -> str:
        return "<Namespace>"


@pass_context
def _turns(context: Context, items: Iterable[Any], num_chars: int) -> Iterator[Any]:
    """Yield `items`, each for the price of a turn whose body has `num_chars` characters."""
    return paying(budget_of(context), OBJECT + num_chars, iter(items))


@pass_context
def _paid(context: Context, value: Any) -> Any:
    return budget_of(context).paid(value)


@pass_context
def _concat(context: Context, parts: tuple[Any, ...]) -> str:
    return join(budget_of(context), "", parts)


@pass_context
def _body(context: Context, num_chars: int) -> str:
    budget_of(context).charge(num_chars)
    return ""


@pass_context
def _write(context: Context, value: Any) -> str:
    return budget_of(context).text(value)


def _check_bits(num_bits: int) -> None:
    if num_bits > _MAX_INTEGER_BITS:
        raise SecurityError(f"it computes with numbers of more than {_MAX_INTEGER_BITS} bits")


def _call_text(budget: Budget, text: str, name: str, args: Any, kwargs: Any) -> Any:
    """Call a method of a string."""
    budget.charge(len(text) // OBJECT)
    if name == "join":
        return join(budget, text, *args, **kwargs)
    if name == "replace":
        return replace(budget, text, *args, **kwargs)
    if name in _SPLITTING:
        separator = args[0] if args else kwargs.get("sep")
        found = text.count(separator) if isinstance(separator, str) and separator else len(text)
        budget.charge(len(text) + OBJECT * found)
    elif name not in _TEXT_METHODS:
        raise SecurityError(f"it calls str.{name}, which a chat template may not")
    return getattr(text, name)(*args, **kwargs)
