"""Names of models on a Hugging Face hub, and which files of a repository make up a model.

`owner/name`, `owner/name@revision`, and for one of several GGUF files `owner/name:Q4_K_M` or `owner/name:FILE.gguf`, as
llama.cpp's `-hf` and Ollama's `hf.co/…` have it. Pure: it asks no hub and opens no file.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from headway.core.errors import FetchError
from headway.models.shard_name import parse_shard_name

DEFAULT_REVISION = "main"
_DEFAULT_QUANTISATION = "Q4_K_M"
"""Of several GGUF files, as llama.cpp and Ollama choose."""

_NAME = re.compile(
    r"(?:(?:https?://)?(?:hf\.co|huggingface\.co)/)?"
    r"(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)"
    r"(?:@(?P<revision>[\w.-]+(?:/[\w.-]+)*))?"
    r"(?::(?P<choice>[\w.+-]+(?:/[\w.+-]+)*))?",
    re.ASCII,
)
_QUANTISATION = re.compile(
    r"[./_-](?P<name>(?:UD-)?(?:I?Q[0-9]\w*|TQ[0-9]\w*|BF16|FP?16|FP?32|MXFP4\w*))$", re.IGNORECASE
)
_WEIGHTS = re.compile(r"model(-[0-9]{5}-of-[0-9]{5})?\.safetensors")
_BESIDE_WEIGHTS = frozenset(
    (
        "config.json",
        "generation_config.json",
        "model.safetensors.index.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "tokenizer.model",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "merges.txt",
        "chat_template.jinja",
        "chat_template.json",
        "modules.json",
        "1_Pooling/config.json",
    )
)
"""All that is fetched with a model's weights. Never code (.py), nor weights that run code when read (.bin, .pt)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubName:
    """A model on a hub.

    repository  "owner/name"
    revision    a branch, tag or commit
    choice      which GGUF: a quantisation or a file's name; None = the repository's model, if it has one
    """

    repository: str
    revision: str = DEFAULT_REVISION
    choice: str | None = None

    def __str__(self) -> str:
        revision = "" if self.revision == DEFAULT_REVISION else f"@{self.revision}"
        return f"{self.repository}{revision}" + (f":{self.choice}" if self.choice else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenFiles:
    """What makes up a model: `files` by their names in the repository; `main` is the GGUF file to open, None the folder."""

    files: tuple[str, ...]
    main: str | None


def parse_hub_name(text: str) -> HubName | None:
    """Return the hub's model that `text` has the form of, or None. Revisions and choices cannot climb out of folders."""
    match = _NAME.fullmatch(text)
    if match is None or any(set(part) == {"."} for part in re.split("[/@:]", text)):
        return None
    return HubName(
        repository=match["repository"], revision=match["revision"] or DEFAULT_REVISION, choice=match["choice"]
    )


def choose_files(name: HubName, files: Collection[str]) -> ChosenFiles:
    """Return which of a repository's `files` are the model that `name` means.

    Raises FetchError, one line that says what there is to choose from, if there is no such model or more than one.
    """
    if name.choice is None and "config.json" in files:
        weights = [file for file in files if _WEIGHTS.fullmatch(file)]
        if weights:
            return ChosenFiles(
                files=tuple(sorted((*weights, *_BESIDE_WEIGHTS.intersection(files)))), main=None
            )
    models = _gguf_models(files)
    chosen = _choose_gguf(name, models)
    return ChosenFiles(files=tuple(models[chosen]), main=models[chosen][0])


def gguf_choices(files: Collection[str]) -> Mapping[str, str]:
    """Return the whole GGUF models among `files`: what to type after the colon, and the file to open."""
    models = _gguf_models(files)
    labels = Counter(map(_label, models))
    return {
        _label(stem) if labels[_label(stem)] == 1 else PurePosixPath(found[0]).name: found[0]
        for stem, found in models.items()
    }


def model_stem(file_name: str) -> str:
    """Return a model file's name without folder, suffix and shard number."""
    base = PurePosixPath(file_name).name
    shard = parse_shard_name(base)
    return shard.stem if shard else re.sub(r"\.gguf$", "", base, flags=re.IGNORECASE)


def _gguf_models(files: Collection[str]) -> dict[str, Sequence[str]]:
    """Return the GGUF models by name without suffix and shard number; each a file, or all shards in order."""
    shards: dict[str, list[str]] = {}
    for file in sorted(files):
        base = PurePosixPath(file).name.lower()
        if not base.endswith(".gguf") or not file.isprintable():  # a name that must not reach a terminal
            continue
        if base.startswith("mmproj") or "imatrix" in base:  # no language models
            continue
        shards.setdefault(str(PurePosixPath(file).parent / model_stem(file)), []).append(file)
    return {stem: found for stem, found in shards.items() if len(found) == _num_shards(found[0])}


def _num_shards(file: str) -> int:
    shard = parse_shard_name(PurePosixPath(file).name)
    return shard.count if shard else 1


def _choose_gguf(name: HubName, models: dict[str, Sequence[str]]) -> str:
    if not models:
        raise FetchError(
            f"{name.repository} has neither safetensors weights with a config.json nor a whole GGUF file: choose a "
            "repository in one of these formats (others, such as .bin, may run code when they are read)."
        )
    choice = name.choice
    if choice is None:
        if len(models) == 1:
            return next(iter(models))
        choice = _DEFAULT_QUANTISATION
    found = [stem for stem, files in models.items() if _matches(choice, stem, files)]
    if len(found) == 1:
        return found[0]
    if name.choice is None:
        problem = f"{name.repository} has several models: name one"
    else:
        problem = f"{name.repository} has {'more than one' if found else 'no'} {choice}: name one"
    labels = sorted({_label(stem) for stem in found or models})
    listed = ", ".join(labels[:12]) + (", …" if len(labels) > 12 else "")
    raise FetchError(f"{problem} after a colon, as in {name.repository}:{labels[0]} (there are: {listed}).")


def _matches(choice: str, stem: str, files: Sequence[str]) -> bool:
    if choice.lower().endswith(".gguf"):
        return any(choice in (file, PurePosixPath(file).name) for file in files)
    quantisation = _QUANTISATION.search(stem)
    wanted = choice.lower()
    return wanted in (stem.lower(), quantisation["name"].lower() if quantisation else None)


def _label(stem: str) -> str:
    """Return what to type after the colon."""
    quantisation = _QUANTISATION.search(stem)
    return quantisation["name"] if quantisation else f"{PurePosixPath(stem).name}.gguf"
