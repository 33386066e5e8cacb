"""A tokenizer from a Hugging Face folder: `tokenizer.json`, run by the package it is written for, and the files beside it.

Byte-pair encoding only, byte-level or with byte fallback; other models (Unigram, WordPiece) are refused by name. What
`tokenizer.json` says about white space, Unicode normalisation and words is carried out as it stands, so ids are those of
`transformers`. Text is cut into pieces only where that changes no id (`hf_text_rules`); otherwise it is encoded whole.
It knows no chat template.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from tokenizers import Tokenizer as Pipeline
from tokenizers import normalizers

from headway.core.errors import ModelFileError
from headway.models.bpe_kinds import byte_level_bytes
from headway.models.hf_text_files import HfTextFiles
from headway.models.hf_text_rules import (
    is_space_rule,
    max_chars_per_token,
    parts_of,
    prepends_space,
    splitter_of,
)
from headway.models.quote import quoted
from headway.models.spm import SPACE, byte_ids, byte_token, spm_bytes
from headway.models.tokenizer_parts import END_TEXTS, TokenizerParts

MAX_TOKENIZER_BYTES = 64 * 1024 * 1024
"""Twice the largest `tokenizer.json` published (Gemma 3: 33 MB)."""
MAX_VOCABULARY = (
    4_000_000  # as many as an array of a GGUF file may have; the largest published has 262,208 tokens
)


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
    space_prefix = prepends_space(pipeline) if spm else False
    contents = {index: token for index, token in added.items() if token.content}

    def plain() -> Pipeline:
        copy = _copy_of(pipeline)
        copy.encode_special_tokens = True
        return copy

    def continuing() -> Pipeline:
        copy = plain()
        copy.normalizer = normalizers.Replace(" ", SPACE)
        copy.pre_tokenizer = None
        return copy

    rules = (*parts_of(pipeline.normalizer), *parts_of(pipeline.pre_tokenizer))

    return TokenizerParts(
        tokens=tokens,
        special=special | missing,
        literal=frozenset() if spm else frozenset(added) - special,
        text_bytes=spm_bytes if spm else byte_level_bytes,
        byte_ids=byte_ids(tokens) if spm else {},
        parsing=pipeline,
        plain=plain,
        continuing=continuing if space_prefix and all(map(is_space_rule, rules)) else None,
        splitter=splitter_of(pipeline, tokens, contents, spm=spm),
        plain_splitter=splitter_of(
            pipeline, tokens, {i: t for i, t in contents.items() if not t.special}, spm=spm
        ),
        bos_id=bos,
        eos_ids=frozenset(
            {*folder.eos_ids, *ends, *(() if eos is None else (eos,))} & set(range(len(tokens)))
        ),
        prefix=prefix,
        suffix=suffix,
        space_prefix=space_prefix,
        max_chars_per_token=max_chars_per_token(pipeline, tokens, contents, spm=spm),
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
    if any(part["type"] == "ByteLevel" for part in parts_of(pipeline.pre_tokenizer)):
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
