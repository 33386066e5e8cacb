"""How text is cut into words before byte-level BPE merges them: the kinds of pre-tokenizers, by llama.cpp's names.

Names, and which names share a pattern: llama.cpp, src/llama-vocab.cpp (`tokenizer_pre` and `regex_exprs`, release 11434).
Patterns are those of the models' own `tokenizer.json`, which llama.cpp quotes and, for `tekken` and `gpt-4o`, rewrites
without letter cases; where that differs, the model's own counts. It knows no vocabulary.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tokenizers import Regex, pre_tokenizers

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = r"[^\r\n\p{L}\p{N}]?"
_AFTER_CASED = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TEKKEN = rf"{_CASED}{_UPPER}*{_LOWER}+|{_CASED}{_UPPER}+{_LOWER}*|\p{{N}}{_AFTER_CASED}"
_SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_GPT4O = (
    rf"{_CASED}{_UPPER}*{_LOWER}+{_SUFFIX}|{_CASED}{_UPPER}+{_LOWER}*{_SUFFIX}|\p{{N}}{{1,3}}{_AFTER_CASED}"
)


@dataclass(frozen=True, slots=True)
class BpeKind:
    """One kind of pre-tokenizer.

    patterns        applied one after the other, each to the pieces that the one before left
    ignores_merges  a word that is in the vocabulary is taken whole
    adds_bos        a text begins with the beginning-of-text token when the file does not say
    """

    patterns: tuple[str, ...]
    ignores_merges: bool = False
    adds_bos: bool = False

    @property
    def lone_digits(self) -> bool:
        """Whether each digit is a word."""
        return r"\p{N}" in self.patterns[0].split("|")


_LLAMA_BPE = BpeKind((_LLAMA3,), ignores_merges=True, adds_bos=True)

BPE_KINDS: Mapping[str, BpeKind] = MappingProxyType(
    {
        "smollm": BpeKind((r"\p{N}", _GPT2)),
        "starcoder": BpeKind((r"\p{N}", _GPT2)),
        "refact": BpeKind((r"\p{N}", _GPT2)),
        "gpt-2": BpeKind((_GPT2,)),
        "phi-2": BpeKind((_GPT2,)),
        "llama-bpe": _LLAMA_BPE,
        "llama3": _LLAMA_BPE,
        "llama-v3": _LLAMA_BPE,
        "falcon3": _LLAMA_BPE,
        "pixtral": _LLAMA_BPE,
        "dbrx": BpeKind((_LLAMA3,)),  # Phi-4's, too
        "smaug-bpe": BpeKind((_LLAMA3,)),
        "qwen2": BpeKind((_QWEN2,)),
        "deepseek-r1-qwen": BpeKind((_QWEN2,)),
        "megrez": BpeKind((_QWEN2,)),
        "stablelm2": BpeKind((_QWEN2,)),
        "qwen35": BpeKind((_QWEN35,)),
        "tekken": BpeKind((_TEKKEN,), ignores_merges=True, adds_bos=True),
        "gpt-4o": BpeKind((_GPT4O,)),  # Phi-4-mini's, too
        "llama4": BpeKind((_GPT4O,)),
    }
)


def pre_tokenizer(kind: BpeKind) -> pre_tokenizers.PreTokenizer:
    """Return what cuts text into words, in the byte alphabet."""
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in kind.patterns]
    return pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


def byte_level_bytes(text: str) -> bytes:
    """Return the bytes that a token written in the byte alphabet stands for; another stands for itself."""
    try:
        return text.translate(_BYTE_ALPHABET).encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _byte_alphabet() -> dict[int, str]:
    """Map each character that stands for a byte to the Latin-1 character of that byte, anything odd to U+FFFD.

    GPT-2's (github.com/openai/gpt-2, src/encoder.py).
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    table = dict.fromkeys(others, "\ufffd")  # as characters these stand for no byte
    return table | {0x100 + index: chr(byte) for index, byte in enumerate(others)}


_BYTE_ALPHABET = _byte_alphabet()
