"""What a `tokenizer.json` does to text before it merges, as far as we know such parts; what follows from that.

Normalizers and pre-tokenizers are asked for their own descriptions. Of a part that is none of those below nothing is
assumed: then text is cut nowhere and a token may stand for any number of characters. It reads no file and merges nothing.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Pipeline

from headway.models.bpe_kinds import BPE_KINDS
from headway.models.spm import SPACE
from headway.models.text_split import TextSplitter, split_pairs, split_words

_NFC_CHARS = 4  # the most characters that NFC makes one of (Unicode, UAX 15)


def parts_of(component: Any) -> list[dict[str, Any]]:
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


def prepends_space(pipeline: Pipeline) -> bool:
    """Whether a text gets a space in front."""
    normalized = [part for part in parts_of(pipeline.normalizer) if part["type"] == "Prepend"]
    spaces = [part for part in parts_of(pipeline.pre_tokenizer) if part["type"] == "Metaspace"]
    return bool(normalized) or any(part.get("prepend_scheme") != "never" for part in spaces)


def splitter_of(
    pipeline: Pipeline, tokens: tuple[str, ...], added: Mapping[int, AddedToken], *, spm: bool
) -> TextSplitter:
    """Return where text may be cut: where the parts are those that `text_split` argues about; else nowhere."""
    texts = [token.content for token in added.values()]
    strips = any(token.lstrip or token.rstrip or token.single_word for token in added.values())
    normalizer, words = parts_of(pipeline.normalizer), parts_of(pipeline.pre_tokenizer)
    if spm:
        if all(map(is_space_rule, normalizer)) and all(map(is_space_rule, words)):
            return split_pairs(tokens, texts, space_prefix=prepends_space(pipeline), strips=strips)
        return TextSplitter(None)
    lone_digits = _lone_digits(words)
    swallows = strips and any(text[-1].isalnum() for text in texts)
    looks_around = any(token.single_word for token in added.values())
    if lone_digits is None or swallows or looks_around or any(part["type"] != "NFC" for part in normalizer):
        return TextSplitter(None)
    return split_words(texts, lone_digits=lone_digits)


def is_space_rule(part: dict[str, Any]) -> bool:
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


def max_chars_per_token(
    pipeline: Pipeline, tokens: tuple[str, ...], added: Mapping[int, AddedToken], *, spm: bool
) -> int | None:
    """Return how many characters a token stands for at most, None if that depends."""
    if any(token.lstrip or token.rstrip for token in added.values()):
        return None
    longest = max(map(len, tokens))
    normalizer = parts_of(pipeline.normalizer)
    if all(map(is_space_rule, normalizer)) and (spm or not normalizer):
        return longest
    return longest * _NFC_CHARS if all(part["type"] == "NFC" for part in normalizer) else None
