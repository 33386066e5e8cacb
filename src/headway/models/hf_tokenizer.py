"""A tokenizer from a Hugging Face folder: `tokenizer.json`, run by the package it is written for, and the files beside it.

Byte-pair encoding only, byte-level or with byte fallback; other models (Unigram, WordPiece) are refused by name. What
`tokenizer.json` says about white space, Unicode normalisation and words is carried out as it stands, so ids are those of
`transformers`. Text is cut into pieces only where its parts are known ones (`_splitter`); otherwise it is encoded whole.
It knows no chat template.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
from tokenizers import AddedToken, normalizers
from tokenizers import Tokenizer as Pipeline

from headway.core.errors import ModelFileError
from headway.models.bpe_kinds import BPE_KINDS, byte_level_bytes
from headway.models.hf_text_files import HfTextFiles
from headway.models.quote import quoted
from headway.models.spm import SPACE, byte_ids, byte_token, spm_bytes
from headway.models.text_split import TextSplitter, split_pairs, split_words
from headway.models.tokenizer_parts import END_TEXTS, TokenizerParts

MAX_TOKENIZER_BYTES = 64 * 1024 * 1024
"""Twice the largest `tokenizer.json` published (Gemma 3: 33 MB)."""
MAX_VOCABULARY = 4_000_000
_NFC_CHARS = 4  # the most characters that NFC makes one of (Unicode, UAX 15)


def read_hf_tokenizer(folder: HfTextFiles) -> TokenizerParts:
    """Take a tokenizer from a folder; raises ModelFileError naming what is missing, malformed or not supported."""
    pipeline = _pipeline(folder)
    added = pipeline.get_added_tokens_decoder()
    tokens, missing = _tokens(folder, pipeline)
    spm = _is_spm(folder, pipeline)
    bos = _id(pipeline, folder.special_token("bos_token"))
    eos = _id(pipeline, folder.special_token("eos_token"))
    special = frozenset(index for index, token in added.items() if token.special)
    ends = {index for index, token in added.items() if token.content in END_TEXTS}
    num_model = folder.vocab_size
    prefix, suffix = _frame(pipeline, folder, bos, eos)
    space_prefix = _prepends_space(pipeline) if spm else False
    contents = {index: token for index, token in added.items() if token.content}

    def plain() -> Pipeline:
        copy = _copy_of(pipeline)
        copy.encode_special_tokens = True
        return copy

    def continuing() -> Pipeline:
        copy = plain()
        if space_prefix:
            if not all(map(_is_space_rule, (*_parts(copy.normalizer), *_parts(copy.pre_tokenizer)))):
                raise ModelFileError(
                    f"{folder.path}: text inside another cannot be encoded with its tokenizer.json."
                )
            copy.normalizer = normalizers.Replace(" ", SPACE)
            copy.pre_tokenizer = None
        return copy

    return TokenizerParts(
        tokens=tokens,
        special=special | missing,
        literal=frozenset() if spm else frozenset(added) - special,
        text_bytes=spm_bytes if spm else byte_level_bytes,
        byte_ids=byte_ids(tokens) if spm else {},
        parsing=pipeline,
        plain=plain,
        continuing=continuing,
        splitter=_splitter(pipeline, tokens, contents, spm=spm),
        plain_splitter=_splitter(
            pipeline, tokens, {i: t for i, t in contents.items() if not t.special}, spm=spm
        ),
        bos_id=bos,
        eos_ids=frozenset(
            {*folder.eos_ids, *ends, *(() if eos is None else (eos,))} & set(range(len(tokens)))
        ),
        prefix=prefix,
        suffix=suffix,
        space_prefix=space_prefix,
        max_chars_per_token=_max_chars(pipeline, tokens, contents, spm=spm),
        unusable=frozenset() if num_model is None else frozenset(range(num_model, len(tokens))),
    )


def _pipeline(folder: HfTextFiles) -> Pipeline:
    data = folder.read("tokenizer.json", MAX_TOKENIZER_BYTES)
    if data is None:
        raise ModelFileError(
            f"{folder.path}: there is no tokenizer.json"
            + (
                "; the tokenizer.model there is SentencePiece's own format. Save the tokenizer anew with transformers, "
                "which writes tokenizer.json."
                if folder.has("tokenizer.model")
                else "."
            )
        )
    with _blamed_on(folder):
        pipeline = Pipeline.from_str(_without_prefix(folder, data).decode())
    pipeline.no_truncation()  # lengths are the gateway's affair
    pipeline.no_padding()
    return pipeline


@contextmanager
def _blamed_on(folder: HfTextFiles) -> Iterator[None]:
    """Turn whatever the package makes of a file into a ModelFileError."""
    try:
        yield
    except UnicodeDecodeError:
        raise ModelFileError(f"{folder.path}: tokenizer.json is not valid UTF-8.") from None
    except (KeyboardInterrupt, SystemExit, ModelFileError):
        raise
    except BaseException as error:  # the package raises bare Exception, and a BaseException where it panics
        raise ModelFileError(f"{folder.path}: tokenizer.json cannot be used ({str(error)[:200]}).") from None


def _without_prefix(folder: HfTextFiles, data: bytes) -> bytes:
    """Return tokenizer.json, checked to ask for no prefix of what continues a word, which no byte-pair encoding here has.

    The package cuts that prefix off the merges without looking: in the midst of a character it ends the process
    (tokenizers 0.23.3; found by fuzzing). Written anew, an object has each key once: what is checked is what is read.
    """
    top = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    model = msgspec.json.decode(top.get("model", b"{}"), type=dict[str, msgspec.Raw])
    prefix = msgspec.json.decode(model.get("continuing_subword_prefix", b"null"))
    if prefix not in (None, ""):
        raise ModelFileError(
            f"{folder.path}: tokenizer.json has the continuing_subword_prefix {quoted(prefix)}, which is not supported."
        )
    top["model"] = msgspec.Raw(msgspec.json.encode(model))
    return msgspec.json.encode(top)


def _copy_of(pipeline: Pipeline) -> Pipeline:
    """Return a pipeline that does the same over the same model, which is nearly all of it and never changes.

    A whole copy of Qwen's 152,000 tokens takes half a second and 140 MB, one that shares the model 0.1 ms.
    """
    copy = Pipeline(pipeline.model)
    for name in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        part = getattr(pipeline, name)
        if part is not None:
            setattr(copy, name, part)
    added = pipeline.get_added_tokens_decoder()
    copy.add_tokens([added[index] for index in sorted(added)])
    if copy.get_added_tokens_decoder() == added:
        return copy
    return Pipeline.from_str(pipeline.to_str())  # ids of added tokens that adding them again does not give


def _tokens(folder: HfTextFiles, pipeline: Pipeline) -> tuple[tuple[str, ...], frozenset[int]]:
    """Return the name of every id, and the ids that have none: models have more rows than tokens, for alignment."""
    names = {index: token for token, index in pipeline.get_vocab(with_added_tokens=True).items()}
    size = max(max(names, default=-1) + 1, folder.vocab_size or 0)
    if not 0 < size <= MAX_VOCABULARY:
        raise ModelFileError(f"{folder.path}: a vocabulary of {size} tokens is not supported.")
    missing = frozenset(index for index in range(size) if index not in names)
    return tuple(names.get(index, f"[PAD{index}]") for index in range(size)), missing


def _is_spm(folder: HfTextFiles, pipeline: Pipeline) -> bool:
    """Return whether bytes without a token of their own are spelled `<0x0A>`, else they are GPT-2's byte alphabet."""
    model = pipeline.model
    kind = type(model).__name__
    if kind != "BPE":
        raise ModelFileError(f"{folder.path}: the tokenizer model {kind!r} is not supported; 'BPE' is.")
    if any(part["type"] == "ByteLevel" for part in _parts(pipeline.pre_tokenizer)):
        return False
    if model.byte_fallback and all(pipeline.token_to_id(byte_token(byte)) is not None for byte in range(256)):
        return True
    raise ModelFileError(
        f"{folder.path}: tokenizer.json is neither byte-level nor has it a token for every byte; it is not supported."
    )


def _frame(
    pipeline: Pipeline, folder: HfTextFiles, bos: int | None, eos: int | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ids that begin and end a text: those of the post-processor, unless the configuration says otherwise."""
    with _blamed_on(folder):
        framed = pipeline.encode("a", add_special_tokens=True).ids
        bare = pipeline.encode("a", add_special_tokens=False).ids
    start = next((i for i in range(len(framed) + 1) if framed[i : i + len(bare)] == bare), None)
    if start is None:
        raise ModelFileError(f"{folder.path}: the post-processor of tokenizer.json is not supported.")
    prefix, suffix = tuple(framed[:start]), tuple(framed[start + len(bare) :])
    adds_bos, adds_eos = folder.tokenizer.get("add_bos_token"), folder.tokenizer.get("add_eos_token")
    if bos is not None and isinstance(adds_bos, bool) and prefix in ((), (bos,)):
        prefix = (bos,) if adds_bos else ()
    if eos is not None and isinstance(adds_eos, bool) and suffix in ((), (eos,)):
        suffix = (eos,) if adds_eos else ()
    return prefix, suffix


def _id(pipeline: Pipeline, token: str | None) -> int | None:
    return None if token is None else pipeline.token_to_id(token)


def _parts(component: Any) -> list[dict[str, Any]]:
    """Return the description of a normalizer or pre-tokenizer as `tokenizer.json` has it, sequences laid flat."""
    if component is None:
        return []

    def flat(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if part["type"] == "Sequence":
            for inner in part.get("normalizers") or part.get("pretokenizers") or ():
                yield from flat(inner)
        else:
            yield part

    return list(flat(json.loads(component.__getstate__())))


def _prepends_space(pipeline: Pipeline) -> bool:
    normalized = [part for part in _parts(pipeline.normalizer) if part["type"] == "Prepend"]
    spaces = [part for part in _parts(pipeline.pre_tokenizer) if part["type"] == "Metaspace"]
    return bool(normalized) or any(part.get("prepend_scheme") != "never" for part in spaces)


def _splitter(
    pipeline: Pipeline, tokens: tuple[str, ...], added: Mapping[int, AddedToken], *, spm: bool
) -> TextSplitter:
    """Return where text may be cut: where the parts are those that `text_split` argues about; else nowhere."""
    texts = [token.content for token in added.values()]
    strips = any(token.lstrip or token.rstrip or token.single_word for token in added.values())
    normalizer, words = _parts(pipeline.normalizer), _parts(pipeline.pre_tokenizer)
    if spm:
        if all(map(_is_space_rule, normalizer)) and all(map(_is_space_rule, words)):
            return split_pairs(tokens, texts, space_prefix=_prepends_space(pipeline), strips=strips)
        return TextSplitter(None)
    lone_digits = _lone_digits(words)
    swallows = strips and any(text[-1].isalnum() for text in texts)
    looks_around = any(token.single_word for token in added.values())
    if lone_digits is None or swallows or looks_around or any(part["type"] != "NFC" for part in normalizer):
        return TextSplitter(None)
    return split_words(texts, lone_digits=lone_digits)


def _is_space_rule(part: dict[str, Any]) -> bool:
    """Whether a part does no more than write spaces as U+2581, or put one in front."""
    match part:
        case {"type": "Prepend", "prepend": prepend}:
            return bool(prepend == SPACE)
        case {"type": "Replace", "pattern": {"String": " "}, "content": content}:
            return bool(content == SPACE)
        case {"type": "Metaspace", "replacement": replacement}:
            return bool(replacement == SPACE)
        case {"type": "Split", "pattern": {"String": " "}}:  # Gemma's; there are no spaces left by then
            return True
    return False


def _lone_digits(words: list[dict[str, Any]]) -> bool | None:
    """Return whether each digit is a word, None if the pre-tokenizer is none that we know."""
    patterns: list[str] = []
    for part in words:
        match part:
            case {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}:
                patterns.append(regex)
            # Tiktoken's way: what matches is kept, and every character matches.
            case {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Removed", "invert": True}:
                patterns.append(regex)
            case {"type": "Digits", "individual_digits": True}:
                patterns.append(r"\p{N}")
            case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": use_regex}:
                patterns += BPE_KINDS["gpt-2"].patterns if use_regex else ()
            case _:
                return None
    kinds = [kind for kind in BPE_KINDS.values() if kind.patterns == tuple(patterns)]
    return kinds[0].lone_digits if kinds else None


def _max_chars(
    pipeline: Pipeline, tokens: tuple[str, ...], added: Mapping[int, AddedToken], *, spm: bool
) -> int | None:
    """Return how many characters a token stands for at most, None if that depends."""
    if any(token.lstrip or token.rstrip for token in added.values()):
        return None
    longest = max(map(len, tokens))
    normalizer = _parts(pipeline.normalizer)
    if all(map(_is_space_rule, normalizer)) and (spm or not normalizer):
        return longest
    return longest * _NFC_CHARS if all(part["type"] == "NFC" for part in normalizer) else None
