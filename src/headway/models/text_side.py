"""Everything about a model that has to do with text: its tokenizer, chat template, and what to do with its tokens.

`open_text` takes what `architectures` takes: a GGUF file (of a split one the first, which says all about text) or a Hugging
Face folder. It reads no tensors, and knows neither requests nor the engine.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.core.errors import ModelFileError
from headway.core.request import Pooling
from headway.models.chat_template import ChatTemplate
from headway.models.gguf import read_gguf
from headway.models.gguf_tokenizer import read_gguf_tokenizer
from headway.models.heap import release_freed_memory
from headway.models.hf_text_files import HfTextFiles
from headway.models.hf_tokenizer import read_hf_tokenizer
from headway.models.model_folder import is_folder
from headway.models.quote import quoted
from headway.models.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class FimTokens:
    """Ids of the tokens that make a model fill in the middle.

    All models that we know by their tokens take: `prefix`, the text before, `suffix`, the text after, `middle`.
    """

    prefix: int
    suffix: int
    middle: int


@dataclass(frozen=True, slots=True)
class TextSide:
    """What serves one model's text. `fim`: None if it cannot fill in; `pooling`: None if it makes no embeddings."""

    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
    fim: FimTokens | None
    pooling: Pooling | None


# Names of these tokens as llama.cpp knows them (src/llama-vocab.cpp): Qwen; StarCoder, Granite; DeepSeek; CodeLlama;
# GLM; Falcon-H1. Mistral's [PREFIX] and [SUFFIX] are left out: Codestral takes the suffix first, and no middle.
_FIM_NAMES = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    ("<\uff5cfim\u2581begin\uff5c>", "<\uff5cfim\u2581hole\uff5c>", "<\uff5cfim\u2581end\uff5c>"),
    ("\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>"),
    ("<PRE>", "<SUF>", "<MID>"),
    ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),
    ("<|prefix|>", "<|suffix|>", "<|middle|>"),
)
_FIM_KEYS = (
    ("fim_pre", "fim_suf", "fim_mid"),
    ("prefix", "suffix", "middle"),
)  # the second are GGUF's older ones

# llama.h, enum llama_pooling_type: what we do, and the names of what we do not.
_POOLING_TYPES: Mapping[int, Pooling | None] = {0: None, 1: "mean", 3: "last"}
_OTHER_POOLING_TYPES = {2: "cls", 4: "rank"}
# sentence-transformers, models/Pooling.py.
_POOLING_MODES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
    "pooling_mode_cls_token": "cls",
}


def open_text(path: Path) -> TextSide:
    """Read the text side of the model at `path`; raises ModelFileError for what we cannot do exactly.

    Reading takes several times the memory that is needed afterwards; it is given back before this returns.
    """
    text = _from_folder(HfTextFiles(path)) if is_folder(path) else _from_gguf(path)
    release_freed_memory()
    return text


@contextmanager
def _blamed_on(path: Path) -> Iterator[None]:
    """Name the file in what is said of its contents by those who do not know where they come from."""
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error.message}") from error


def _from_gguf(path: Path) -> TextSide:
    metadata = read_gguf(path).metadata
    with _blamed_on(path):
        return text_of_metadata(metadata)


def _from_folder(folder: HfTextFiles) -> TextSide:
    tokenizer = Tokenizer(read_hf_tokenizer(folder))
    source = folder.chat_template
    template = None
    if source is not None:
        bos, eos = (folder.special_token(role) or "" for role in ("bos_token", "eos_token"))
        with _blamed_on(folder.path):
            template = ChatTemplate(source, bos_token=bos, eos_token=eos)
    return TextSide(tokenizer, template, fim_by_name(tokenizer), _folder_pooling(folder))


def _folder_pooling(folder: HfTextFiles) -> Pooling | None:
    """Return what sentence-transformers' configuration says, as one of several switches or by name."""
    config = folder.json("1_Pooling/config.json")
    on = {name for name, value in config.items() if name.startswith("pooling_mode_") and value is True}
    names = {_POOLING_MODES.get(name, name.removeprefix("pooling_mode_")) for name in on}
    if isinstance(config.get("pooling_mode"), str):
        names.add(str(config["pooling_mode"]))
    match sorted(names):
        case []:
            return None
        case ["mean"]:
            return "mean"
        case ["last"] | ["lasttoken"]:
            return "last"
        case others:
            raise ModelFileError(
                f"{folder.path}: pooling by {quoted(' and '.join(others))} is not supported; mean and last are."
            )


def text_of_metadata(metadata: Mapping[str, Any]) -> TextSide:
    """Read the text side of a GGUF file's metadata; raises ModelFileError."""
    tokenizer = Tokenizer(read_gguf_tokenizer(metadata))
    template = _gguf_template(metadata, tokenizer)
    return TextSide(tokenizer, template, _gguf_fim(metadata, tokenizer), _gguf_pooling(metadata))


def _gguf_template(metadata: Mapping[str, Any], tokenizer: Tokenizer) -> ChatTemplate | None:
    source = metadata.get("tokenizer.chat_template")
    if source is None or source == "":
        return None
    if not isinstance(source, str):
        raise ModelFileError("tokenizer.chat_template is not a string.")
    eos = metadata.get("tokenizer.ggml.eos_token_id")  # checked by the tokenizer
    return ChatTemplate(
        source,
        bos_token=tokenizer.token_text(tokenizer.bos_id),
        eos_token=tokenizer.token_text(eos if isinstance(eos, int) else None),
    )


def _gguf_fim(metadata: Mapping[str, Any], tokenizer: Tokenizer) -> FimTokens | None:
    for names in _FIM_KEYS:
        ids = [metadata.get(f"tokenizer.ggml.{name}_token_id") for name in names]
        known = [i for i in ids if isinstance(i, int) and 0 <= i < tokenizer.vocab_size]
        if len(known) == len(names):
            return FimTokens(*known)
    return fim_by_name(tokenizer)


def fim_by_name(tokenizer: Tokenizer) -> FimTokens | None:
    """Return the tokens that fill in the middle as models are used to calling them, None if there are none.

    None as well where the text after the middle could not be encoded as it was in training.
    """
    if not tokenizer.can_continue:
        return None
    for names in _FIM_NAMES:
        ids = [tokenizer.token_id(name) for name in names]
        known = [i for i in ids if i is not None]
        if len(known) == len(names):
            return FimTokens(*known)
    return None


def _gguf_pooling(metadata: Mapping[str, Any]) -> Pooling | None:
    key = f"{metadata.get('general.architecture')}.pooling_type"
    kind = metadata.get(key, 0)
    if kind not in _POOLING_TYPES:
        name = _OTHER_POOLING_TYPES.get(kind, kind)
        raise ModelFileError(f"{quoted(key)} is {quoted(name)}, which is not supported; mean and last are.")
    return _POOLING_TYPES[kind]
