"""A tokenizer from a GGUF file's metadata (`tokenizer.ggml.*`): byte-level BPE, and SentencePiece with byte fallback.

It reads no file: any mapping with GGUF's keys will do. The reference for ids is llama.cpp on the same file
(src/llama-vocab.cpp, release 11434). One difference is wanted: with special tokens spelled out, no text adds up to one.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from math import isfinite
from typing import Any

from tokenizers import AddedToken, models, normalizers
from tokenizers import Tokenizer as Pipeline

from headway.core.errors import ModelFileError
from headway.models.bpe_kinds import BPE_KINDS, BpeKind, byte_level_bytes, pre_tokenizer
from headway.models.quote import quoted
from headway.models.spm import SPACE, byte_ids, spm_bytes, spm_model
from headway.models.text_split import TextSplitter, split_pairs, split_words
from headway.models.tokenizer_parts import END_TEXTS, TokenizerParts

_SPM_BOS, _SPM_EOS, _SPM_UNKNOWN = 1, 2, 0  # where the file does not say (llama.cpp)
_KEEP_SPACE_AFTER = frozenset(
    {"<unk>", "<s>", "<|endoftext|>"}
)  # Phi-3's tokens that do not swallow white space


class TokenType(IntEnum):
    """GGUF's `tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def read_gguf_tokenizer(metadata: Mapping[str, Any]) -> TokenizerParts:
    """Take a tokenizer from GGUF metadata; raises ModelFileError naming what is missing, malformed or not supported."""
    vocabulary = _Vocabulary(metadata)
    model = metadata.get("tokenizer.ggml.model")
    if model == "gpt2":
        return _byte_level(vocabulary)
    if model == "llama":
        return _sentencepiece(vocabulary)
    raise ModelFileError(
        f"The tokenizer model {quoted(model)} is not supported; 'gpt2' (byte-level BPE) and 'llama' (SentencePiece BPE) are."
    )


class _Vocabulary:
    """Tokens and their types, checked."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.metadata = metadata
        tokens = _strings(metadata, "tokenizer.ggml.tokens")
        if "" in tokens:
            tokens = tuple(token or f"[EMPTY_{index}]" for index, token in enumerate(tokens))
        if len(set(tokens)) != len(tokens):
            raise ModelFileError("tokenizer.ggml.tokens holds a token twice.")
        types = metadata.get("tokenizer.ggml.token_type") or [TokenType.NORMAL] * len(tokens)
        if not isinstance(types, (list, tuple)) or len(types) != len(tokens):
            raise ModelFileError("tokenizer.ggml.token_type and tokenizer.ggml.tokens differ in length.")
        self.tokens = tokens
        self.types = types
        self.special = self.of_type(TokenType.CONTROL, TokenType.UNKNOWN)
        self.literal = self.of_type(TokenType.USER_DEFINED)

    def of_type(self, *wanted: TokenType) -> frozenset[int]:
        return frozenset(index for index, kind in enumerate(self.types) if kind in wanted)

    def texts(self, ids: Iterable[int]) -> list[str]:
        return [self.tokens[index] for index in sorted(ids)]

    def id(self, name: str, default: int | None = None) -> int | None:
        """Return the id that the metadata give for a purpose ("bos", "eos")."""
        key = f"tokenizer.ggml.{name}_token_id"
        value = self.metadata.get(key)
        if value is None:
            return default if default is None or default < len(self.tokens) else None
        if not isinstance(value, int) or not 0 <= value < len(self.tokens):
            raise ModelFileError(f"{key} is {quoted(value)}, which is not in the vocabulary.")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.metadata.get(f"tokenizer.ggml.{name}")
        return default if value is None else bool(value)

    def eos_ids(self, default: int | None = None) -> frozenset[int]:
        """Return every token that ends an answer."""
        named = {self.id("eos", default), self.id("eot"), self.id("eom")}
        return frozenset({index for index in named if index is not None}) | {
            index for index in self.special if self.tokens[index] in END_TEXTS
        }

    def prefix(self, bos: int | None, default: bool) -> tuple[int, ...]:
        """Return what begins a text; `default`: whether it is `bos` if the file does not say."""
        return () if bos is None or not self.flag("add_bos_token", default) else (bos,)

    def suffix(self, eos: int | None) -> tuple[int, ...]:
        """Return what ends a text."""
        return () if eos is None or not self.flag("add_eos_token", False) else (eos,)


def _byte_level(vocabulary: _Vocabulary) -> TokenizerParts:
    name = vocabulary.metadata.get("tokenizer.ggml.pre")
    if not isinstance(name, str) or name not in BPE_KINDS:
        known = ", ".join(BPE_KINDS)
        raise ModelFileError(f"The pre-tokenizer {quoted(name)} is not supported; supported are {known}.")
    kind = BPE_KINDS[name]
    merges = _strings(vocabulary.metadata, "tokenizer.ggml.merges")
    bpe = _bpe(vocabulary.tokens, merges, kind.ignores_merges)
    special, literal = vocabulary.texts(vocabulary.special), vocabulary.texts(vocabulary.literal)
    bos = vocabulary.id("bos")

    return TokenizerParts(
        tokens=vocabulary.tokens,
        special=vocabulary.special,
        literal=vocabulary.literal,
        text_bytes=byte_level_bytes,
        byte_ids={},
        parsing=_byte_level_pipeline(bpe, kind, literal + special),
        plain=lambda: _byte_level_pipeline(bpe, kind, literal),
        continuing=None,
        splitter=split_words(literal + special, lone_digits=kind.lone_digits),
        plain_splitter=split_words(literal, lone_digits=kind.lone_digits),
        bos_id=bos,
        eos_ids=vocabulary.eos_ids(),
        prefix=vocabulary.prefix(bos, kind.adds_bos),
        suffix=vocabulary.suffix(vocabulary.id("eos")),
        max_chars_per_token=max(map(len, vocabulary.tokens)),
    )


def _sentencepiece(vocabulary: _Vocabulary) -> TokenizerParts:
    tokens = vocabulary.tokens
    scores = vocabulary.metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, (list, tuple)) or len(scores) != len(tokens):
        raise ModelFileError("tokenizer.ggml.scores is missing, or not as long as tokenizer.ggml.tokens.")
    if not all(type(score) in (int, float) and isfinite(score) for score in scores):
        raise ModelFileError("tokenizer.ggml.scores has an element that is no number.")
    if vocabulary.flag("remove_extra_whitespaces", False):
        raise ModelFileError("A SentencePiece tokenizer that removes white space is not supported.")
    bytes_of = byte_ids(tokens)
    ordinary = vocabulary.of_type(TokenType.NORMAL, TokenType.UNUSED) - bytes_of.keys()
    unknown = vocabulary.id("unknown", _SPM_UNKNOWN)
    bpe = spm_model(tokens, scores, ordinary, None if unknown is None else tokens[unknown])
    space_prefix = vocabulary.flag("add_space_prefix", True)
    stripping = _swallows_space(vocabulary)
    mergeable = vocabulary.texts(ordinary)

    def pipeline(ids: frozenset[int], *, prefix: bool = space_prefix) -> Pipeline:
        pipeline = Pipeline(bpe)
        spaces = normalizers.Replace(" ", SPACE)
        pipeline.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spaces]) if prefix else spaces
        pipeline.add_special_tokens(
            [
                AddedToken(tokens[index], special=True, normalized=False, rstrip=index in stripping)
                for index in sorted(ids)
            ]
        )
        return pipeline

    def splitter(ids: frozenset[int]) -> TextSplitter:
        added = vocabulary.texts(ids)
        return split_pairs(mergeable, added, space_prefix=space_prefix, strips=bool(stripping))

    bos, eos = vocabulary.id("bos", _SPM_BOS), vocabulary.id("eos", _SPM_EOS)
    added = vocabulary.literal | vocabulary.special
    return TokenizerParts(
        tokens=tokens,
        special=vocabulary.special,
        literal=vocabulary.literal,
        text_bytes=spm_bytes,
        byte_ids=bytes_of,
        parsing=pipeline(added),
        plain=lambda: pipeline(vocabulary.literal),
        continuing=lambda: pipeline(vocabulary.literal, prefix=False),
        splitter=splitter(added),
        plain_splitter=splitter(vocabulary.literal),
        bos_id=bos,
        eos_ids=vocabulary.eos_ids(_SPM_EOS),
        prefix=vocabulary.prefix(bos, True),
        suffix=vocabulary.suffix(eos),
        space_prefix=space_prefix,
        max_chars_per_token=None if stripping else max(map(len, tokens)),
    )


def _swallows_space(vocabulary: _Vocabulary) -> frozenset[int]:
    """Return the tokens that take white space after them along: Phi-3's, which llama.cpp knows by the model's name."""
    name = vocabulary.metadata.get("general.name")
    if not isinstance(name, str) or not ("phi-3" in name.lower() or "phi3" in name.lower()):
        return frozenset()
    added = vocabulary.special | vocabulary.literal
    return frozenset(index for index in added if vocabulary.tokens[index] not in _KEEP_SPACE_AFTER)


def _strings(metadata: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return a list of strings; raises ModelFileError if there is none."""
    value = metadata.get(key)
    if not isinstance(value, (list, tuple)) or not value or not isinstance(value[0], str):
        raise ModelFileError(f"The file has no list of strings {key}, which its tokenizer needs.")
    return tuple(value)


def _bpe(tokens: tuple[str, ...], merges: tuple[str, ...], ignore_merges: bool) -> models.BPE:
    vocabulary = {token: index for index, token in enumerate(tokens)}
    pairs: list[tuple[str, str]] = []
    for merge in merges:
        left, space, right = merge.partition(" ")
        if not (left and space and right):
            raise ModelFileError(
                f"The merge {quoted(merge)} in tokenizer.ggml.merges is not two tokens and a space."
            )
        pairs.append((left, right))
    try:
        return models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=ignore_merges)
    except Exception as error:  # the package raises bare Exception
        raise ModelFileError(f"The file's merges do not fit its vocabulary ({error}).") from error


def _byte_level_pipeline(bpe: models.BPE, kind: BpeKind, added: list[str]) -> Pipeline:
    pipeline = Pipeline(bpe)
    pipeline.pre_tokenizer = pre_tokenizer(kind)
    pipeline.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in added])
    return pipeline
