"""Entities by plain rules: paths, errors, names and what the user insists on. It knows no grammar of any language.

A text is cut into words and lines, each of which is looked at once, so that time grows with the text and nothing else.
"""

import re
from collections.abc import Iterator
from typing import Final

from headway.client.entity import MAX_ENTITY_CHARS, Entity, EntityKind, sentence

_MAX_LINE_CHARS: Final = 8_192
"""What is looked at of a line: paragraphs are one, and longer ones are data."""
_MAX_SENTENCE_CHARS: Final = 400
"""Of a rule, and of what is looked at of a line for an error: both come early or not at all."""
_MAX_NAME_CHARS: Final = 80

_WORD: Final = re.compile(r"`(?P<code>[^`\s]+)`|[^\s\"'`()\[\]{}<>,;|=]+\(?")
_SUFFIX: Final = re.compile(
    r"bash|c|cc|cfg|cmake|conf|cpp|cs|css|csv|cu|cuh|db|env|go|gradle|h|hpp|html|ini|ipynb|java|jinja|js|json|jsx|kt|lock|log"
    r"|lua|m|md|mjs|mk|php|pl|proto|ps1|py|pyi|pyx|r|rb|rs|rst|scala|sh|sql|sqlite|svelte|swift|tf|toml|tsx?|txt|vue|xml"
    r"|ya?ml|zig",
    re.IGNORECASE,
)
"""Endings that make a word a file's name, also without a folder before it."""
_PATH: Final = re.compile(r"(?:[A-Za-z]:)?[\w.@+~\-/\\]*[\w\-]")
_POSITION: Final = re.compile(r"(?::\d+){1,2}$")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w*)*")
_HUMPS: Final = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]{2}")
_PRODUCT: Final = re.compile(
    r"JavaScript|TypeScript|GitHub|GitLab|PostgreSQL|MySQL|SQLite|MongoDB|GraphQL|OpenAI|macOS|iOS|LaTeX|YouTube"
)
"""What looks like a class and is none."""
_ERROR: Final = re.compile(
    r"\b(?:[A-Za-z_][\w.]{0,80}(?:Error|Exception|Panic|Fault): ?\S"  # Python, Java, JavaScript
    r"|(?:\w{1,80}\.)?error(?:\[\w+\]|  ?[A-Z]+\d+)?: ?\S"  # rustc, gcc, tsc; Python's struct.error
    r"|(?:fatal(?: error)?|panic|segmentation fault|undefined reference)\b.)",
)
_RULE: Final = re.compile(
    r"\b(?:must(?:n't)?|never|always|only|don't|do not|cannot|can't|should(?:n't)?|avoid|at most|at least|no more than"
    r"|no longer than|up to|limit(?:ed)?|require[sd]?|without|instead of|keep)\b",
    re.IGNORECASE,
)
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+|\n+")
_LEAST_RULE_CHARS: Final = 12

_DEFINITION: Final = re.compile(
    r"^[ \t]*(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|pub|unsafe|inline|virtual"
    r"|const)\s+){0,4}(?P<word>def|function|fn|func|class|struct|interface|enum|trait|type|record)\s+"
    r"(?:\([^)]{0,80}\)\s*)?(?P<name>[A-Za-z_]\w{0,79})",
    re.MULTILINE,
)
_KINDS: Final[dict[str, EntityKind]] = {
    **dict.fromkeys(("def", "function", "fn", "func"), "function"),
    **dict.fromkeys(("class", "record"), "class"),
    **dict.fromkeys(("struct", "interface", "enum", "trait", "type"), "type"),
}


def entities_of_text(text: str, *, by_user: bool) -> Iterator[Entity]:
    """Yield what prose or a log mentions, in its order, repeated as often as it is; rules only of what the user says."""
    for line in text.splitlines():
        shown = line[:_MAX_LINE_CHARS]
        found = _ERROR.search(shown[:_MAX_SENTENCE_CHARS])
        if found is not None:
            yield sentence("error", shown[found.start() : _MAX_SENTENCE_CHARS])
        for word in _WORD.finditer(shown):
            yield from _of_word(word["code"] or word[0], is_code=word["code"] is not None)
    if by_user:
        for part in _SENTENCE_END.split(text):
            if _LEAST_RULE_CHARS <= len(part) <= _MAX_SENTENCE_CHARS and _RULE.search(part):
                yield sentence("rule", part)


def definitions_by_rules(code: str) -> Iterator[Entity]:
    """Yield what code defines, by the words before a name: for languages without a grammar, or without tree-sitter."""
    for found in _DEFINITION.finditer(code):
        yield Entity(_KINDS[found["word"]], found["name"])


def _of_word(word: str, *, is_code: bool) -> Iterator[Entity]:
    called = word.endswith(("(", "()"))
    word = word.rstrip("()").rstrip(".:!?*").lstrip("*@#$&")
    if "://" in word or not 2 <= len(word) <= MAX_ENTITY_CHARS:
        return
    path = _POSITION.sub("", word)
    if _is_path(path):
        yield Entity("path", path)
    elif len(word) <= _MAX_NAME_CHARS and _IDENTIFIER.fullmatch(word) and _is_name(word, called or is_code):
        yield Entity("function" if called else "name", word)


def _is_path(word: str) -> bool:
    if not _PATH.fullmatch(word):
        return False
    name = word.replace("\\", "/").rpartition("/")[2]
    stem, dot, suffix = name.rpartition(".")
    if dot and stem.strip(".") and _SUFFIX.fullmatch(suffix):
        return True
    return word.count("/") > 1 and (dot != "" or word[0] in "./~")


def _is_name(word: str, meant: bool) -> bool:
    """Return whether a word looks like a name of code, or, where it is `meant` as one, may be."""
    if _PRODUCT.fullmatch(word):
        return False
    if meant:
        return len(word) > 2
    return "_" in word.strip("_") or "::" in word or _HUMPS.search(word) is not None or _is_dotted(word)


def _is_dotted(word: str) -> bool:
    """Return whether a word is a module's or an object's member, and not `e.g`."""
    parts = word.split(".")
    return len(parts) > 1 and all(len(part) > 1 for part in parts)
