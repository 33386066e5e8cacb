"""What a tokenizer is made of, whichever files it came from. Readers fill it in, `tokenizer` runs it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tokenizers import Tokenizer as Pipeline

from headway.models.text_split import TextSplitter


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerParts:
    """One model's tokenizer, taken apart.

    tokens               (vocab_size,) names, as the files write them
    special              ids of control tokens: recognised in a prompt, left out of an answer
    literal              further ids whose name is their text
    text_bytes           the bytes that the name of any other token stands for
    byte_ids             tokens that stand for one byte, and which
    parsing              text to ids, recognising special tokens' names
    plain                makes the pipeline that takes those names for ordinary text; called at most once
    continuing           with a `space_prefix`: makes the pipeline for text that goes on from another, which is `plain` but
                         puts no space in front, called at most once; None if nobody knows how
    splitter             where text may be cut before `parsing`
    plain_splitter       where text may be cut before `plain`
    bos_id               the token that begins a text, None if the files name none
    eos_ids              every token that ends an answer
    prefix, suffix       ids that begin and end a text
    space_prefix         a text gets a space in front before it is cut into tokens
    unusable             ids that the model has no row for
    max_chars_per_token  no token stands for more characters of a text than this; None if that is not known
    """

    tokens: tuple[str, ...]
    special: frozenset[int]
    literal: frozenset[int]
    text_bytes: Callable[[str], bytes]
    byte_ids: Mapping[int, int]
    parsing: Pipeline
    plain: Callable[[], Pipeline]
    continuing: Callable[[], Pipeline] | None
    splitter: TextSplitter
    plain_splitter: TextSplitter
    bos_id: int | None
    eos_ids: frozenset[int]
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    space_prefix: bool = False
    unusable: frozenset[int] = frozenset()
    max_chars_per_token: int | None


# Tokens that end a turn under whatever name, as llama.cpp recognises them: files name only one of them.
END_TEXTS = frozenset(
    {
        "<|endoftext|>",
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "<|end_of_text|>",
        "<end_of_turn>",
        "<end_of_utterance>",
        "</s>",
        "<eos>",
        "<EOT>",
        "_<EOT>",
        "\u2581<EOT>",  # CodeLlama
        "<\uff5cend\u2581of\u2581sentence\uff5c>",  # DeepSeek
        "<|fim_pad|>",  # Qwen's coder models end what they fill in with one of these
        "<|repo_name|>",
        "<|file_sep|>",
    }
)
