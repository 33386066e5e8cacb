"""Write tests/data/tokenizers: tiny vocabularies, and the ids that public implementations give 200 strings with them.

- `byte_level.json`: one vocabulary whose merges cross every boundary of words, so that ids show where words end. For each
  kind of pre-tokenizer the ids of the `tokenizers` package, with the pre-tokenizer as published `tokenizer.json`s have it.
- `spm_*.json`: vocabularies with scores, trained by and with the ids of the `sentencepiece` package: Llama's way (a space
  in front, runs of spaces with equal scores) and Gemma's (no space in front, user-defined runs and tags).
- `hf_*/`: what `transformers` makes of the same, with its ids in `ids.json`.

Needs sentencepiece and transformers (made with 0.2.3 and 5.24.0), which no test does; the same bytes every time:

    python scripts/make_tiny_tokenizers.py
"""

import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import sentencepiece  # type: ignore[import-not-found]
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (  # type: ignore[import-not-found]
    GemmaTokenizer,
    LlamaTokenizer,
    PreTrainedTokenizerFast,
)

from make_tokenizer_references import strings  # type: ignore[import-not-found]

TARGET = Path(__file__).parents[1] / "tests" / "data" / "tokenizers"
SOURCE = Path(__file__).parents[1] / "tests" / "data" / "smollm2" / "python_source.txt"

BYTE_LEVEL_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
NOT_WORD = r"[^\r\n\p{L}\p{N}]?"
LLAMA3 = rf"{CONTRACTIONS}|{NOT_WORD}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{SPACES}"
PATTERNS = {
    "llama-bpe": LLAMA3,
    "dbrx": LLAMA3,
    "qwen2": LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}"),
    "qwen35": rf"{CONTRACTIONS}|{NOT_WORD}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{SPACES}",
    "tekken": rf"{NOT_WORD}{UPPER}*{LOWER}+|{NOT_WORD}{UPPER}+{LOWER}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}",
    "gpt-4o": rf"{NOT_WORD}{UPPER}*{LOWER}+{CONTRACTIONS}?|{NOT_WORD}{UPPER}+{LOWER}*{CONTRACTIONS}?|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}",
}
IGNORES_MERGES = {"llama-bpe", "tekken"}
KEPT = {"add_bos_token", "bos_token", "eos_token", "pad_token", "tokenizer_class", "unk_token"}
"""What is kept of `tokenizer_config.json`; the rest says where the files lay."""
GEMMA_SYMBOLS = ["\n\n", "\n\n\n", "\u2581\u2581", "\u2581\u2581\u2581\u2581", "<table>", "</table>"]


def published_pre_tokenizer(kind: str) -> pre_tokenizers.PreTokenizer:
    """Return the pre-tokenizer of a kind as the models' own files have it."""
    if kind == "gpt-2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if kind == "smollm":
        words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), words])
    split = pre_tokenizers.Split(Regex(PATTERNS[kind]), "isolated", invert=False)
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def byte_level_model(texts: Sequence[str], vocab_size: int) -> dict[str, Any]:
    """Train one vocabulary on whole texts; return the model's part of its `tokenizer.json`."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=BYTE_LEVEL_SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=12,
        show_progress=False,
    )
    trained.train_from_iterator(texts, trainer)
    model: dict[str, Any] = json.loads(trained.to_str())["model"]
    return model


def byte_level_tokenizer(model: dict[str, Any], kind: str) -> Tokenizer:
    tokenizer = Tokenizer(
        models.BPE(
            vocab=model["vocab"],
            merges=[tuple(merge) for merge in model["merges"]],
            ignore_merges=kind in IGNORES_MERGES,
        )
    )
    tokenizer.pre_tokenizer = published_pre_tokenizer(kind)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(BYTE_LEVEL_SPECIAL)
    return tokenizer


def write_byte_level(texts: Sequence[str]) -> None:
    corpus = [*texts, *SOURCE.read_text().split("\n\n")]
    model = byte_level_model(corpus, 800)
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    ids: dict[str, list[list[int] | None]] = {}
    for kind in ("gpt-2", "smollm", *PATTERNS):
        tokenizer = byte_level_tokenizer(model, kind)
        found = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        # null: the same as gpt-2's
        ids[kind] = [
            None if "gpt-2" in ids and mine == first else mine
            for mine, first in zip(found, ids.get("gpt-2", found), strict=True)
        ]
    merges = [" ".join(merge) for merge in model["merges"]]
    write(
        TARGET / "byte_level.json",
        {"special": len(BYTE_LEVEL_SPECIAL), "tokens": tokens, "merges": merges, "ids": ids},
    )
    qwen = byte_level_tokenizer(model, "qwen2")
    qwen.normalizer = normalizers.NFC()
    save_hf(
        "hf_qwen2",
        PreTrainedTokenizerFast(tokenizer_object=qwen, eos_token="<|im_end|>", pad_token="<|endoftext|>"),
        texts,
    )


def train_spm(path: Path, texts: Iterable[str], **options: Any) -> sentencepiece.SentencePieceProcessor:
    """Train a vocabulary as Llama's and Gemma's were: byte-pair merging, byte fallback, text left as it is."""
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(texts),
        model_prefix=str(path.with_suffix("")),
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
        character_coverage=0.995,
        max_sentence_length=100_000,
        num_threads=1,
        minloglevel=2,
        **options,
    )
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def with_runs_of_spaces(path: Path) -> sentencepiece.SentencePieceProcessor:
    """Make the last tokens runs of 2 to 16 spaces with one score, as Llama's vocabulary has them."""
    model = sentencepiece_model_pb2.ModelProto.FromString(path.read_bytes())
    merged = [piece for piece in model.pieces if piece.type == 1 and len(piece.piece) > 1]
    for length, piece in zip(range(2, 17), reversed(merged), strict=False):
        piece.piece, piece.score = "\u2581" * length, -1e9
    path.write_bytes(model.SerializeToString())
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def spm_data(
    model: sentencepiece.SentencePieceProcessor,
    texts: Sequence[str],
    *,
    space_prefix: bool,
    symbols: Sequence[str] = (),
) -> dict[str, Any]:
    """Return vocabulary and ids, with the types as llama.cpp's converter writes them to GGUF."""

    def kind(index: int) -> int:
        if model.IsUnknown(index):
            return 2
        if model.IsControl(index):
            return 3
        if model.IsByte(index):
            return 6
        return 4 if model.IdToPiece(index) in symbols else 1

    size = model.GetPieceSize()
    types = [kind(index) for index in range(size)]
    pieces = [model.IdToPiece(index) for index in range(size)]
    tokens = [
        piece.replace("\u2581", " ") if type_ == 4 else piece
        for piece, type_ in zip(pieces, types, strict=True)
    ]
    return {
        "space_prefix": space_prefix,
        "tokens": tokens,
        "scores": [model.GetScore(index) for index in range(size)],
        "types": types,
        "ids": [model.Encode(text) for text in texts],
    }


def write_spm(texts: Sequence[str], folder: Path) -> None:
    corpus = [line for text in [*texts, *texts, SOURCE.read_text()] for line in text.split("\n") if line]
    path = folder / "llama.model"
    train_spm(path, corpus, vocab_size=700, add_dummy_prefix=True)
    llama = with_runs_of_spaces(path)
    write(TARGET / "spm_llama.json", spm_data(llama, texts, space_prefix=True))
    save_hf("hf_llama", LlamaTokenizer.from_pretrained(with_config(path, "llama"), add_bos_token=True), texts)
    path = folder / "gemma.model"
    gemma = train_spm(
        path,
        corpus,
        vocab_size=700,
        add_dummy_prefix=False,
        user_defined_symbols=GEMMA_SYMBOLS,
        pad_id=0,
        eos_id=1,
        bos_id=2,
        unk_id=3,
        pad_piece="<pad>",
        eos_piece="<eos>",
        bos_piece="<bos>",
    )
    write(TARGET / "spm_gemma.json", spm_data(gemma, texts, space_prefix=False, symbols=GEMMA_SYMBOLS))
    save_hf("hf_gemma", GemmaTokenizer.from_pretrained(with_config(path, "gemma"), add_bos_token=True), texts)


def with_config(model: Path, name: str) -> str:
    """Put a SentencePiece model where `transformers` looks for one."""
    folder = model.parent / name
    folder.mkdir()
    (folder / "tokenizer.model").write_bytes(model.read_bytes())
    return str(folder)


def save_hf(name: str, tokenizer: Any, texts: Sequence[str]) -> None:
    folder = TARGET / name
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer.json"
    write(path, json.loads(path.read_text()))
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    write(path, {key: config[key] for key in sorted(config) if key in KEPT})
    write(folder / "ids.json", [tokenizer(text)["input_ids"] for text in texts])


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def main() -> None:
    texts = strings()
    write(TARGET / "strings.json", texts)
    write_byte_level(texts)
    with tempfile.TemporaryDirectory() as folder:
        write_spm(texts, Path(folder))


if __name__ == "__main__":
    main()
