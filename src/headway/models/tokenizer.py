"""Text to token ids and back: byte-level BPE, built from a model file's metadata.

The merging is done by the `tokenizers` package; here are the choices around it. It knows no file format (any mapping
with GGUF's `tokenizer.ggml.*` keys will do) and no chat. The reference for ids is llama.cpp on the same file.

Two properties the gateway stands on, measured with tokenizers 0.23 (tests/models/test_tokenizer.py repeats the first):

- `encode` runs on a worker thread while another thread streams. `tokenizers.Tokenizer.encode` keeps the interpreter
  lock for the whole call (1.5 s for 2 MiB of source); `encode_batch_fast` lets go of it, except while ids become
  Python integers. So long text is cut into pieces (`split_text`) and each is encoded by `encode_batch_fast`.
- Text is cut only where every supported pre-tokenizer has a boundary anyway, so the ids are those of the whole text.

Byte alphabet: GPT-2's (github.com/openai/gpt-2, src/encoder.py). Patterns: llama.cpp, src/llama-vocab.cpp.
"""

import os
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any

from tokenizers import AddedToken, Regex, models, pre_tokenizers
from tokenizers import Tokenizer as BpeTokenizer

from headway.core.errors import InvalidRequest, ModelFileError
from headway.models.text_split import TextSplitter

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PATTERNS = {  # tokenizer.ggml.pre -> patterns applied one after the other, each to the pieces the one before left
    "smollm": (r"\p{N}", _GPT2),
    "gpt-2": (_GPT2,),
    "llama-bpe": (_LLAMA3,),
    "qwen2": (_LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}"),),
}
_IGNORES_MERGES = frozenset({"llama-bpe"})  # a word that is in the vocabulary is taken whole
_ADDS_BOS = frozenset({"llama-bpe"})  # when the file does not say

# Tokens that end a turn under whatever name, as llama.cpp recognises them: files name only one of them.
_END_TEXTS = frozenset(
    {
        "<|endoftext|>",
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "<|end_of_text|>",
        "<end_of_turn>",
        "</s>",
    }
)


class TokenType(IntEnum):
    """GGUF's `tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class Tokenizer:
    """One model's tokenizer. Immutable; every method may be called from any thread.

    bos_id   the token that begins a text, None if the file names none
    eos_ids  every token that ends an answer, ascending
    """

    bos_id: int | None
    eos_ids: tuple[int, ...]

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        """Build from GGUF metadata; raises ModelFileError naming what is missing, malformed or not supported."""
        # One text never gains from the package's thread pool, and its threads would take cores from the engine.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        model = metadata.get("tokenizer.ggml.model")
        if model != "gpt2":
            raise ModelFileError(
                f"The tokenizer model {model!r} is not supported; 'gpt2' (byte-level BPE) is."
            )
        kind = metadata.get("tokenizer.ggml.pre")
        if kind not in _PATTERNS:
            known = ", ".join(_PATTERNS)
            raise ModelFileError(f"The pre-tokenizer {kind!r} is not supported; supported are {known}.")
        self._tokens: tuple[str, ...] = _strings(metadata, "tokenizer.ggml.tokens")
        types = metadata.get("tokenizer.ggml.token_type") or [TokenType.NORMAL] * len(self._tokens)
        if not isinstance(types, (list, tuple)) or len(types) != len(self._tokens):
            raise ModelFileError("tokenizer.ggml.token_type and tokenizer.ggml.tokens differ in length.")
        self._special = frozenset(
            i for i, t in enumerate(types) if t in (TokenType.CONTROL, TokenType.UNKNOWN)
        )
        self._literal = frozenset(i for i, t in enumerate(types) if t == TokenType.USER_DEFINED)
        self._bytes_of = _byte_alphabet()

        bpe = _bpe(self._tokens, _strings(metadata, "tokenizer.ggml.merges"), kind in _IGNORES_MERGES)
        literal, special = self._texts(self._literal), self._texts(self._special)
        self._plain = _pipeline(bpe, kind, literal)
        self._parsing = _pipeline(bpe, kind, literal + special)
        self._splitter = TextSplitter(
            literal + special, lone_digits=r"\p{N}" in _PATTERNS[kind][0].split("|")
        )

        self.bos_id = self._id(metadata, "bos")
        named = {self._id(metadata, name) for name in ("eos", "eot", "eom")}
        self.eos_ids = tuple(
            sorted(
                {i for i in named if i is not None}
                | {i for i in self._special if self._tokens[i] in _END_TEXTS}
            )
        )
        adds_bos = metadata.get("tokenizer.ggml.add_bos_token", kind in _ADDS_BOS)
        self._prefix = [self.bos_id] if adds_bos and self.bos_id is not None else []
        self.longest_token_bytes = max(len(token) for token in self._tokens)

    @property
    def vocab_size(self) -> int:
        """How many token ids there are."""
        return len(self._tokens)

    def is_special(self, token_id: int) -> bool:
        """Whether a token is control rather than text: it is left out of an answer."""
        return token_id in self._special

    def encode(
        self,
        text: str,
        *,
        parse_special: bool = True,
        add_bos: bool = True,
        max_tokens: int | None = None,
    ) -> list[int]:
        """Return the ids of `text`, in time linear in its length, without holding the interpreter lock for long.

        parse_special  the strings of special tokens in `text` become those tokens. As llama-server and vLLM do, this
                       is on for raw prompts (fill-in-the-middle needs it) and rendered chats, where it includes the
                       messages' own text: whoever writes a message can write `<|im_start|>`. The model is no boundary
                       of trust. False: such strings are spelled out in ordinary tokens.
        add_bos        begin with `bos_id` if the file asks for it and the text does not already.
        max_tokens     stop early once there are more ids than this: the result is then longer than `max_tokens`, but not
                       the whole text. For who refuses such a prompt anyway.

        Raises InvalidRequest for text that is not Unicode (lone surrogates).
        """
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise InvalidRequest(
                    f"The text has a lone surrogate at character {error.start}; send valid Unicode."
                ) from error
        pipeline = self._parsing if parse_special else self._plain
        ids = list(self._prefix) if add_bos else []
        for piece in self._splitter.split(text):
            ids += pipeline.encode_batch_fast([piece], add_special_tokens=False)[0].ids
            if max_tokens is not None and len(ids) > max_tokens:
                break
        if self._prefix and ids[:2] == self._prefix * 2:  # the text brought its own
            del ids[0]
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes one token stands for, which need not be whole characters. A special token gives its name.

        Raises IndexError for an id outside the vocabulary.
        """
        if token_id < 0:
            raise IndexError(f"token id {token_id} is negative")
        text = self._tokens[token_id]
        if token_id in self._special or token_id in self._literal:
            return text.encode()
        try:
            return text.translate(self._bytes_of).encode("latin-1")
        except UnicodeEncodeError:  # not written in the byte alphabet: it stands for itself
            return text.encode()

    def decode(self, token_ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Return the text of `token_ids`; bytes that are no UTF-8 become U+FFFD."""
        kept = (i for i in token_ids if not (skip_special and i in self._special))
        return b"".join(map(self.token_bytes, kept)).decode(errors="replace")

    def token_text(self, token_id: int | None) -> str:
        """Return a token as the file writes it (what a template calls `bos_token`); "" for None."""
        return "" if token_id is None else self._tokens[token_id]

    def min_num_tokens(self, text: str) -> int:
        """Return a lower bound of `len(encode(text))` without encoding: who is far too long can be refused at once."""
        return -(-len(text) // self.longest_token_bytes)

    def _texts(self, ids: frozenset[int]) -> list[str]:
        return [self._tokens[i] for i in sorted(ids) if self._tokens[i]]

    def _id(self, metadata: Mapping[str, Any], name: str) -> int | None:
        key = f"tokenizer.ggml.{name}_token_id"
        value = metadata.get(key)
        if value is None:
            return None
        if not isinstance(value, int) or not 0 <= value < len(self._tokens):
            raise ModelFileError(f"{key} is {value!r}, which is not in the vocabulary.")
        return value


def _strings(metadata: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = metadata.get(key)
    if not isinstance(value, (list, tuple)) or not value or not isinstance(value[0], str):
        raise ModelFileError(f"The file has no list of strings {key}, which its tokenizer needs.")
    return tuple(value)


def _bpe(tokens: tuple[str, ...], merges: tuple[str, ...], ignore_merges: bool) -> models.BPE:
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise ModelFileError("tokenizer.ggml.tokens holds a token twice.")
    pairs: list[tuple[str, str]] = []
    for merge in merges:
        left, space, right = merge.partition(" ")
        if not (left and space and right):
            raise ModelFileError(
                f"The merge {merge[:80]!r} in tokenizer.ggml.merges is not two tokens and a space."
            )
        pairs.append((left, right))
    try:
        return models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=ignore_merges)
    except Exception as error:  # the package raises bare Exception
        raise ModelFileError(f"The file's merges do not fit its vocabulary ({error}).") from error


def _pipeline(bpe: models.BPE, kind: str, added: list[str]) -> BpeTokenizer:
    pipeline = BpeTokenizer(bpe)
    pipeline.pre_tokenizer = pre_tokenizer(kind)
    pipeline.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in added])
    return pipeline


def pre_tokenizer(kind: str) -> pre_tokenizers.PreTokenizer:
    """Return what cuts text into words before merging, for a `tokenizer.ggml.pre` that is supported."""
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in _PATTERNS[kind]]
    return pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


def _byte_alphabet() -> dict[int, str]:
    """Map each character that stands for a byte to the Latin-1 character of that byte, anything odd to U+FFFD."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    table = dict.fromkeys(others, "\ufffd")  # as characters these stand for no byte
    return table | {0x100 + index: chr(byte) for index, byte in enumerate(others)}
