"""SentencePiece's merging by scores, expressed as byte-pair merges that the `tokenizers` package can carry out.

SentencePiece (src/bpe_model.cc) and llama.cpp (src/llama-vocab.cpp, `llm_tokenizer_spm`) join, again and again, the two
neighbours whose joined text is the token with the highest score, the leftmost of equals. Byte-pair encoding joins the
pair of the lowest rank, the leftmost of equals. So every way to split a token into two tokens is a merge, and ranks
follow scores. Equal scores have no order of their own; they are expressed exactly where they occur in practice, on runs
of one character (Llama-2's runs of spaces): there, leftmost means that a run grows by one character at a time from its
left end, so only those merges exist and the longest come first. Other ties are refused by name.

As in SentencePiece, only ordinary tokens are merged: no text adds up to a control or byte token.
"""

from collections.abc import Iterable, Mapping, Sequence

from tokenizers import models

from headway.core.errors import ModelFileError
from headway.models.quote import quoted

SPACE = "\u2581"
"""What stands for a space in a vocabulary (U+2581)."""

_MAX_SPLIT_CHARS = (
    1_000_000_000  # copied while all tokens are split, at most: a few seconds; Gemma's need 20 million
)


def spm_model(
    tokens: Sequence[str], scores: Sequence[float], ordinary: Iterable[int], unknown: str | None
) -> models.BPE:
    """Return the merging of a vocabulary.

    tokens, scores   (vocab_size,)
    ordinary         ids of the tokens that text adds up to
    unknown          the token for what no byte token stands for; there is none when all 256 exist

    Raises ModelFileError for scores that leave the order of merges open, or when a byte has no token.
    """
    vocabulary = {token: index for index, token in enumerate(tokens)}
    for byte in range(256):
        if byte_token(byte) not in vocabulary:
            raise ModelFileError(
                f"The tokenizer has no token {byte_token(byte)}; SentencePiece without byte fallback is not supported."
            )
    merges = _merges({tokens[index]: scores[index] for index in ordinary})
    return models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True, unk_token=unknown)


def byte_token(byte: int) -> str:
    """Return the name of the token that stands for a byte."""
    return f"<0x{byte:02X}>"


def byte_ids(tokens: Iterable[str]) -> dict[int, int]:
    """Return which tokens stand for one byte, and for which."""
    value_of = {byte_token(byte): byte for byte in range(256)}
    return {index: value_of[token] for index, token in enumerate(tokens) if token in value_of}


def spm_bytes(text: str) -> bytes:
    """Return the bytes that the name of an ordinary token stands for."""
    return text.replace(SPACE, " ").encode()


def _merges(score_of: Mapping[str, float]) -> list[tuple[str, str]]:
    """Return all pairs of tokens that make a token, in the order in which they are merged."""
    if sum(len(token) ** 2 for token in score_of) > _MAX_SPLIT_CHARS:
        raise ModelFileError("The tokens of the vocabulary are too long; they cannot be split in all ways.")
    ranked = sorted(score_of, key=score_of.__getitem__, reverse=True)
    pairs: list[tuple[str, str]] = []
    tied: list[str] = []  # tokens with more than one character that can be made, all of the score of the last
    first = 0  # where the pairs of `tied` begin
    for token in ranked:
        if len(token) == 1:
            continue
        start = len(pairs)
        for cut in range(1, len(token)):
            left = token[:cut]
            if left in score_of:
                right = token[cut:]
                if right in score_of:
                    pairs.append((left, right))
        if len(pairs) == start:
            continue
        if tied and score_of[tied[-1]] == score_of[token]:
            tied.append(token)
            continue
        if len(tied) > 1:
            pairs[first:start] = _runs(tied)
            start = first + len(tied)
        tied, first = [token], start
    if len(tied) > 1:
        pairs[first:] = _runs(tied)
    return pairs


def _runs(tied: Sequence[str]) -> list[tuple[str, str]]:
    """Return the merges of runs of characters that all have the same score, one for each."""
    lengths: dict[str, list[int]] = {}
    for token in tied:
        if token.strip(token[0]):
            other = next(text for text in tied if text != token)
            raise ModelFileError(
                f"The tokens {quoted(token)} and {quoted(other)} have the same score, which leaves open which is merged "
                "first; convert the model anew from its tokenizer.model."
            )
        lengths.setdefault(token[0], []).append(len(token))
    for char, found in lengths.items():
        if sorted(found) != list(range(2, len(found) + 2)):
            raise ModelFileError(
                f"The runs of {char!r} in the vocabulary have equal scores and gaps in their lengths."
            )
    by_length = sorted(tied, key=len, reverse=True)
    return [(token[:-1], token[-1]) for token in by_length]
