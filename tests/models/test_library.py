import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from headway.core.plan import TensorType
from headway.models.library import LibraryEntry, list_library
from headway.models.sources import MODELS, cached_path
from headway.models.summary import TypeUse, printable, summarise
from support.gguf_writer import MetadataInput
from support.tiny_gguf import write_tiny_gguf

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def write_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(
        json.dumps({"model_type": "llama", "max_position_embeddings": 512, "vocab_size": 8})
    )
    (folder / "tokenizer.json").write_text("{}")
    save_file({"a": np.zeros((4, 8), np.float16), "b": np.zeros(8, np.float32)}, folder / "model.safetensors")
    return folder


def snapshot(hub_cache: Path, repository: str = "owner/name", revision: str = "main") -> Path:
    """Make an empty snapshot that `revision` names."""
    folder = hub_cache / f"models--{repository.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "refs" / revision).write_text(COMMIT)
    (folder / "snapshots" / COMMIT).mkdir(parents=True, exist_ok=True)
    return folder / "snapshots" / COMMIT


def entries(tmp_path: Path) -> dict[str, LibraryEntry]:
    return {entry.name: entry for entry in list_library(tmp_path / "cache", tmp_path / "hub")}


def test_a_gguf_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    extra: dict[str, MetadataInput] = {"general.license": "mit", "general.name": "a\x1b[31mb"}
    write_tiny_gguf(path, tensor_type=TensorType.Q8_0, extra_metadata=extra)
    summary = summarise(path)
    assert (summary.architecture, summary.context, summary.licence) == ("llama", 512, "mit")
    assert summary.name == "a?[31mb"  # no control character reaches a terminal
    assert summary.num_bytes == path.stat().st_size
    assert [use.type for use in summary.types] == ["Q8_0", "F32"]
    assert sum(use.num_tensors for use in summary.types) == 2 * 9 + 2
    assert (summary.tokenizer, summary.vocab_size) == ("gpt2, smollm", 320)


def test_a_folder_says_what_it_is(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    summary = summarise(folder)
    assert (summary.architecture, summary.context, summary.vocab_size) == ("llama", 512, 8)
    assert summary.num_parameters == 40
    assert summary.types == (
        TypeUse(type="F16", num_tensors=1, num_bytes=64),
        TypeUse(type="F32", num_tensors=1, num_bytes=32),
    )
    assert summary.tokenizer == "tokenizer.json"


def test_long_text_is_cut() -> None:
    assert printable("x" * 200) == "x" * 100 + "…"


def test_nothing_here_is_the_aliases_alone(tmp_path: Path) -> None:
    assert [(entry.name, entry.source, entry.path) for entry in entries(tmp_path).values()] == [
        (alias, "alias", None) for alias in MODELS
    ]


def test_what_people_put_into_the_cache_is_listed_by_path(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    write_tiny_gguf(cache / "mine.gguf")
    write_folder(cache / "folder")
    found = entries(tmp_path)
    assert found[str(cache / "mine.gguf")].source == "cache"
    assert found[str(cache / "folder")].path == cache / "folder"


def test_an_alias_whose_file_is_damaged_is_listed_with_the_reason(tmp_path: Path) -> None:
    model = MODELS["smollm2"]
    path = cached_path(model, tmp_path / "cache")
    path.parent.mkdir(parents=True)
    with path.open("wb") as stream:
        stream.truncate(model.num_bytes)  # the right size, all zeros
    entry = entries(tmp_path)["smollm2"]
    assert entry.problem is not None
    assert "not a GGUF file" in entry.problem


def test_the_hubs_models_are_listed_by_what_to_type(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    write_folder(snapshot(hub))
    write_tiny_gguf(snapshot(hub, "owner/single") / "m.gguf")
    for name in ("m-Q4_0.gguf", "m-Q8_0.gguf"):
        write_tiny_gguf(snapshot(hub, "owner/several") / name)
    write_tiny_gguf(snapshot(hub, "owner/tagged", "v1") / "m.gguf")
    names = [name for name, entry in entries(tmp_path).items() if entry.source == "hub"]
    assert names == [
        "owner/name",
        "owner/several:Q4_0",
        "owner/several:Q8_0",
        "owner/single",
        "owner/tagged@v1",
    ]
    assert all(entries(tmp_path)[name].summary is not None for name in names)


def test_broken_entries_are_listed_as_such(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    snapshot(hub, "owner/empty")
    (snapshot(hub, "owner/half") / "config.json").write_text("{}")
    (snapshot(hub, "owner/bin") / "pytorch_model.bin").touch()
    (snapshot(hub, "owner/damaged") / "m.gguf").write_bytes(b"GGUF")
    snapshot(hub, "owner/gone").rmdir()
    (hub / "models--owner--file").touch()
    (hub / "datasets--owner--name").mkdir()
    found = {name: entry for name, entry in entries(tmp_path).items() if entry.source == "hub"}
    assert list(found) == [f"owner/{name}" for name in ("bin", "damaged", "empty", "gone", "half")]
    for name, reason in (("empty", "is empty"), ("half", "not whole"), ("damaged", "ends within")):
        problem = found[f"owner/{name}"].problem
        assert problem is not None
        assert reason in problem


@pytest.mark.parametrize("name", ["owner/name", "owner/name@v1"])
def test_a_link_out_of_a_snapshot_is_a_problem(tmp_path: Path, name: str) -> None:
    folder = write_folder(snapshot(tmp_path / "hub", revision=name.partition("@")[2] or "main"))
    (folder / "model.safetensors").rename(tmp_path / "elsewhere")
    (folder / "model.safetensors").symlink_to(tmp_path / "elsewhere")
    problem = entries(tmp_path)[name].problem
    assert problem is not None
    assert "out of the model's folder" in problem
