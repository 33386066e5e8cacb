"""Grammars to vocabulary masks: which tokens may come next so that the whole answer matches.

The parsing is done by the `llguidance` package (an Earley parser over a lexer of regular-expression derivatives, walked
along a trie of the vocabulary; github.com/guidance-ai/llguidance); here are the choices around it. It is imported when the
first `GrammarVocabulary` is made, so that a server that never sees a grammar pays nothing. This file knows no request, no
scheduler and no HTTP; the fields of the wire become a `Grammar` in `wire.structured`.

JSON is written compactly, with at most one space after each comma and colon. Free white space is where small models get
lost: they emit line breaks for ever, all of them valid.

What a JSON schema asks for and the package cannot enforce (`not`, `if`, `uniqueItems`, `oneOf` of overlapping schemas…) is
refused by name. Unknown keywords are annotations, as the JSON Schema specification has it. `format` is enforced.

Lark, in short (the package's docs/syntax.md has all of it):

- `start: …` is the whole answer. Lower-case names are rules, upper-case names are terminals (one regular expression each).
- `"text"`, `/regex/`, `a b`, `a | b`, `( … )`, `?`, `*`, `+`, `{2,5}`, `// comment`.
- `%json { … }` is a value that matches a JSON schema. `wire.structured.inline_json` writes it with our white space.
- `<|name|>` is a control token of the vocabulary, by its name; `<[123]>` by its id. Tokens that are text to the tokenizer
  (Qwen's `<tool_call>`) are written as text, `"<tool_call>"`, and the model may use its one token for it.
- `head[lazy]: TEXT "<tool_call>"` is text up to the first marker, marker included.
- `stop=` and `max_tokens=` of the package do not work here; a rule is ended by a marker, an answer by `max_tokens`.

Free text, then any number of calls, each of which must match a schema, with text between them:

    start: call* tail
    tail: TEXT
    TEXT: /(.|\\n)*/
    head[lazy]: TEXT "<tool_call>"
    call: head "\\n" body "\\n</tool_call>"
    body: %json {"anyOf": […]}

With `call+` there is at least one; with `start: "<tool_call>" "\\n" body "\\n</tool_call>"` the answer is one call and
nothing else. `tests/models/test_grammar.py` runs these.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final, Protocol

from headway.core.errors import InvalidRequest
from headway.core.request import Grammar

MAX_SOURCE_CHARS: Final = 512 * 1024
"""Longest source of a grammar: room for the schemas of all tools of a request (`wire.tools`)."""
_MAX_QUOTED_CHARS: Final = 300
_NOTHING_MATCHES: Final = "NoExtensionBias"
"""The package's word at the beginning of an answer that no token may begin and that may not be empty."""

# Limits of the package, deterministic (they count work, not time); figures are benchmarks/structured.py's and docs/log.md's.
_MAX_ITEMS_IN_ROW: Final = 2000  # its default: what a rule may branch into at one place
_INITIAL_LEXER_FUEL: Final = 500_000  # half its default; an enum of 5,000 strings needs under 200,000
_STEP_LEXER_FUEL: Final = 50_000  # a quarter of its default (14,000 are about 1 ms)
_STEP_MAX_ITEMS: Final = 2000  # an ambiguous grammar took 130 ms a mask with 20,000 and 9 ms with this
_STEP_MAX_ITEMS_OF_JSON: Final = 5000  # hundreds of optional properties branch widely, but at 1 µs an item
_MAX_LEXER_STATES: Final = 20_000  # 1-2 kB each
_MAX_GRAMMAR_SIZE: Final = 100_000

_JSON_OPTIONS: Final = (
    '{"item_separator": ", ?", "key_separator": ": ?", "whitespace_flexible": false, "whitespace_pattern": null,'
    ' "coerce_one_of": false, "lenient": false}'
)


class TokenTable(Protocol):
    """What a grammar must know of a tokenizer: `models.tokenizer.Tokenizer`, or a stand-in."""

    @property
    def vocab_size(self) -> int:
        """How many token ids there are."""
        ...

    @property
    def eos_ids(self) -> Collection[int]:
        """Tokens that end an answer."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes that a token stands for; of a special token, its name."""
        ...

    def is_special(self, token_id: int) -> bool:
        """Return whether a token is control rather than text."""
        ...

    def encode(self, text: str, *, parse_special: bool, add_bos: bool) -> Sequence[int]:
        """Return the ids of `text`."""
        ...


class GrammarVocabulary:
    """A vocabulary prepared for grammars: expensive to build, then shared by every matcher.

    Building takes 0.05 s for 49,000 tokens and 0.22 s for 152,000, with the interpreter lock held
    (`benchmarks/structured.py`). Every method may be called from any thread.
    """

    def __init__(self, tokens: TokenTable, vocab_size: int) -> None:
        """Prepare `tokens` for a model that draws ids below `vocab_size`; ids without a token are never allowed."""
        import llguidance

        self._package = llguidance
        self._end_ids = tuple(sorted(i for i in tokens.eos_ids if i < vocab_size))
        self._num_bytes = -(-vocab_size // 32) * 4
        wrapper = llguidance.TokenizerWrapper(_Wrapped(tokens, vocab_size, self._end_ids))
        # Slices are masks of parts of JSON made ahead: they double time and memory here and gained nothing (docs/log.md).
        self._tokenizer = llguidance.LLTokenizer(wrapper, eos_token=list(self._end_ids) or None, slices=[])
        wrapper._gtokenizer.greedy = self._tokenizer.greedy_tokenize

    def compile(self, grammar: Grammar, stop_token_ids: Collection[int]) -> "Matcher":
        """Return a matcher at the beginning of an answer; milliseconds, up to seconds for grammars near the limits.

        stop_token_ids   tokens that end the choice: those of them that end an answer for this vocabulary are allowed
                         where the grammar may end, and no others of the vocabulary's are

        Lets go of the interpreter lock. Raises InvalidRequest, naming `grammar.param`, for a grammar that is malformed,
        cannot be enforced, matches nothing or exceeds a limit.
        """
        if len(grammar.source) > MAX_SOURCE_CHARS:
            raise InvalidRequest(
                f"`{grammar.param}` has {len(grammar.source)} characters; at most {MAX_SOURCE_CHARS} are accepted.",
                param=grammar.param,
            )
        matcher = self._package.LLMatcher(
            self._tokenizer, self._source(grammar), log_level=0, limits=self._limits(grammar)
        )
        if matcher.is_error():
            raise _refused(grammar, matcher.get_error())
        ignored = [i for i in self._end_ids if i not in stop_token_ids]
        return Matcher(matcher, grammar, self._num_bytes, ignored)

    def _limits(self, grammar: Grammar) -> Any:
        of_json = grammar.kind == "json_schema"
        return self._package.LLParserLimits(
            max_items_in_row=_MAX_ITEMS_IN_ROW,
            initial_lexer_fuel=_INITIAL_LEXER_FUEL,
            step_lexer_fuel=_STEP_LEXER_FUEL,
            step_max_items=_STEP_MAX_ITEMS_OF_JSON if of_json else _STEP_MAX_ITEMS,
            max_lexer_states=_MAX_LEXER_STATES,
            max_grammar_size=_MAX_GRAMMAR_SIZE,
            verbose_errors=False,  # verbose ones quote the grammar and what was generated
        )

    def _source(self, grammar: Grammar) -> str:
        builder: Any = self._package.LLMatcher  # its types know no options in JSON
        try:
            match grammar.kind:
                case "json_schema":
                    source = builder.grammar_from_json_schema(grammar.source, overrides=_JSON_OPTIONS)
                case "regex":
                    source = builder.grammar_from_regex(grammar.source)
                case "lark" | "gbnf":
                    source = builder.grammar_from_lark(as_compiled(grammar).source)
        except ValueError as error:
            raise _refused(grammar, str(error)) from None
        return str(source)


def as_compiled(grammar: Grammar) -> Grammar:
    """Return `grammar` in the form in which it is compiled: GBNF as Lark. Raises InvalidRequest, naming its field."""
    if grammar.kind != "gbnf":
        return grammar
    from llguidance import gbnf_to_lark

    try:
        source = gbnf_to_lark.gbnf_to_lark(grammar.source)
    except Exception as error:  # the package raises bare Exception
        raise _refused(grammar, str(error)) from None
    return Grammar(kind="lark", source=source, param=grammar.param)


class Matcher:
    """Where one answer stands in its grammar. One owner, one thread at a time.

    No method raises for what the grammar or the tokens do: from the first error on, `error` is set and nothing is allowed.
    """

    def __init__(
        self, matcher: Any, grammar: Grammar, num_bytes: int, ignored_end_ids: Sequence[int]
    ) -> None:
        self._matcher = matcher
        self._grammar = grammar
        self._nothing = bytes(num_bytes)
        self._ignored = ignored_end_ids
        self._mask: bytes | None = None
        self._exhausted = False

    @property
    def error(self) -> InvalidRequest | None:
        """Why nothing can be matched any more: a limit was reached, or a token did not match. None = all is well."""
        return _refused(self._grammar, self._matcher.get_error()) if self._matcher.is_error() else None

    @property
    def may_end(self) -> bool:
        """Whether the answer so far is complete."""
        return bool(self._matcher.is_accepting())

    @property
    def is_finished(self) -> bool:
        """Whether the answer is complete and nothing can be added to it."""
        return self._exhausted or (bool(self._matcher.is_stopped()) and not self._matcher.is_error())

    def mask(self) -> bytes:
        """Return which tokens may come next: bit t%32 of little-endian 32-bit word t//32, ceil(vocab_size/32) words."""
        if self._mask is None:
            mask: bytes = self._matcher.compute_bitmask()[: len(self._nothing)]
            if self._matcher.is_error():
                return self._nothing
            self._mask = _without(mask, self._ignored) if self._ignored else mask
            self._exhausted = self._mask == self._nothing and self.may_end
        return self._mask

    def advance(self, token_ids: Sequence[int]) -> bool:
        """Note tokens that were generated, none of which ended the answer; return whether all of them match."""
        self._mask = None
        return bool(self._matcher.consume_tokens(list(token_ids)))

    def rollback(self, num_tokens: int) -> None:
        """Take back the last `num_tokens` that were noted."""
        self._mask = None
        self._exhausted = False
        self._matcher.rollback(num_tokens)

    def copy(self) -> "Matcher":
        """Return an independent matcher at the same place."""
        copy = Matcher(self._matcher.deep_copy(), self._grammar, len(self._nothing), self._ignored)
        copy._mask, copy._exhausted = self._mask, self._exhausted
        return copy


class _Wrapped:
    """A `TokenTable` as the package wants it. It is called where the grammar leaves one text only, to learn its tokens."""

    def __init__(self, tokens: TokenTable, vocab_size: int, end_ids: Sequence[int]) -> None:
        num_tokens = min(tokens.vocab_size, vocab_size)
        self._tokens = tokens
        self.tokens = [tokens.token_bytes(i) for i in range(num_tokens)] + [b""] * (vocab_size - num_tokens)
        self.special_token_ids = [i for i in range(num_tokens) if tokens.is_special(i)]
        self.eos_token_id = end_ids[0] if end_ids else None
        self.bos_token_id = None
        self.greedy: Any = None

    def __call__(self, text: str | bytes) -> Sequence[int]:
        if isinstance(text, bytes):  # asked once, to learn what is taken
            raise TypeError("text, please")
        ids = self._tokens.encode(text, parse_special=False, add_bos=False)
        # A tokenizer may put a space before the text; forced text must be spelled exactly.
        spelled = b"".join(self.tokens[i] for i in ids if i < len(self.tokens))
        return ids if spelled == text.encode() else self.greedy(text)


def _without(mask: bytes, ids: Sequence[int]) -> bytes:
    changed = bytearray(mask)
    for token_id in ids:
        changed[token_id // 8] &= ~(1 << token_id % 8)
    return bytes(changed)


def _refused(grammar: Grammar, reason: str) -> InvalidRequest:
    text = " ".join(reason.replace("<non-verbose/>", "").split())
    if text.rstrip(".") == _NOTHING_MATCHES:
        text = "no text that the model can write matches it"
    if len(text) > _MAX_QUOTED_CHARS:
        text = text[:_MAX_QUOTED_CHARS] + "…"
    return InvalidRequest(f"`{grammar.param}` cannot be enforced: {text.rstrip('.')}.", param=grammar.param)
