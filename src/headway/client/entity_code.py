"""What code defines, by tree-sitter: functions, classes, types. Needs the extra `editor`; without it there is nothing here.

Broken code is parsed as far as it goes, which is what code in a chat needs. Grammars are those that the extra installs.
"""

import importlib
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Final

from headway.client.entity import Entity, EntityKind

if TYPE_CHECKING:
    from tree_sitter import Language, Node

MAX_CODE_BYTES: Final = 128 * 1024
"""Of one block: some 3,000 lines, parsed in about 50 ms."""
_MAX_NODES: Final = 100_000

_GRAMMARS: Final = {
    "cpp": ("tree_sitter_cpp", "language"),
    "go": ("tree_sitter_go", "language"),
    "java": ("tree_sitter_java", "language"),
    "javascript": ("tree_sitter_javascript", "language"),
    "python": ("tree_sitter_python", "language"),
    "rust": ("tree_sitter_rust", "language"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
}
_NAMES: Final = {
    **dict.fromkeys(("c", "cc", "c++", "cuda", "cxx", "h", "hpp"), "cpp"),
    **dict.fromkeys(("golang",), "go"),
    **dict.fromkeys(("js", "jsx", "mjs", "node"), "javascript"),
    **dict.fromkeys(("py", "python3", "pyi", "pycon"), "python"),
    **dict.fromkeys(("rs",), "rust"),
    **dict.fromkeys(("ts",), "typescript"),
}
"""What fences call a language, besides its own name."""

_KINDS: Final[dict[str, EntityKind]] = {
    **dict.fromkeys(
        (
            "function_definition",  # Python, C++
            "function_declaration",  # Go, JavaScript
            "generator_function_declaration",
            "method_definition",
            "method_declaration",  # Go, Java
            "constructor_declaration",
            "function_item",  # Rust
            "macro_definition",
        ),
        "function",
    ),
    **dict.fromkeys(
        (
            "class_definition",
            "class_declaration",
            "abstract_class_declaration",
            "class_specifier",
            "record_declaration",
        ),
        "class",
    ),
    **dict.fromkeys(
        (
            "interface_declaration",
            "type_alias_declaration",
            "enum_declaration",
            "type_spec",
            "type_alias",
            "struct_item",
            "enum_item",
            "trait_item",
            "type_item",
            "union_item",
            "struct_specifier",
            "enum_specifier",
            "union_specifier",
            "alias_declaration",
        ),
        "type",
    ),
}
_NEEDS_BODY: Final = frozenset({"class_specifier", "struct_specifier", "enum_specifier", "union_specifier"})
"""C++ names a type with the same node where it is only used."""
_FUNCTION_VALUES: Final = frozenset({"arrow_function", "function_expression", "generator_function"})


def language_of(fence: str) -> str | None:
    """Return the language that a fence's first word names; None = it names none that there is a grammar of."""
    words = fence.split()
    name = words[0].lower().strip("{}.") if words else ""
    name = _NAMES.get(name, name)
    return name if name in _GRAMMARS else None


def definitions(code: str, language: str) -> Iterator[Entity] | None:
    """Yield what `code` defines, in its order; None where the language's grammar is not installed."""
    grammar = _grammar(language)
    return None if grammar is None else _walk(code, grammar)


@cache
def _grammar(language: str) -> "Language | None":
    module, function = _GRAMMARS[language]
    try:
        from tree_sitter import Language

        return Language(getattr(importlib.import_module(module), function)())
    except ImportError:
        return None


def _walk(code: str, grammar: "Language") -> Iterator[Entity]:
    from tree_sitter import Parser

    tree = Parser(grammar).parse(code.encode()[:MAX_CODE_BYTES])
    waiting = [tree.root_node]
    for _ in range(_MAX_NODES):
        if not waiting:
            return
        node = waiting.pop()
        kind, name = _definition(node)
        if kind is not None and name is not None and name.text:
            yield Entity(kind, name.text.decode(errors="replace"))
        waiting.extend(reversed(node.named_children))


def _definition(node: "Node") -> "tuple[EntityKind | None, Node | None]":
    """Return what a node defines, if anything, and the node of its name."""
    if node.type == "variable_declarator":  # JavaScript: const f = () => …
        value = node.child_by_field_name("value")
        if value is not None and value.type in _FUNCTION_VALUES:
            return "function", node.child_by_field_name("name")
        return None, None
    kind = _KINDS.get(node.type)
    if kind is None or (node.type in _NEEDS_BODY and node.child_by_field_name("body") is None):
        return None, None
    return kind, node.child_by_field_name("name") or _declared(node)


def _declared(node: "Node") -> "Node | None":
    """Return the name inside a C++ function's declarators: pointer, reference, function, then the name itself."""
    inner = node.child_by_field_name("declarator")
    while inner is not None and (deeper := _inside(inner)) is not None:
        inner = deeper
    return inner


def _inside(declarator: "Node") -> "Node | None":
    if declarator.type == "reference_declarator":  # its declarator has no field's name
        return next(iter(declarator.named_children), None)
    return declarator.child_by_field_name("declarator")
