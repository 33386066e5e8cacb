from pathlib import Path

import pytest

from headway.core.errors import ConfigError
from headway.models.hub_name import HubName
from headway.models.sources import (
    MODELS,
    WheelModel,
    cache_folder,
    cached_path,
    find_model,
    known_sha256,
    parse_source,
    served_name,
)


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HEADWAY_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"HEADWAY_CACHE": "", "XDG_CACHE_HOME": "/b"}, "/b/headway"),
        ({"XDG_CACHE_HOME": "relative"}, "HOME/.cache/headway"),
        ({}, "HOME/.cache/headway"),
        ({"HEADWAY_CACHE": "~/models"}, "HOME/models"),
    ],
)
def test_the_cache_folder_follows_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, environ: dict[str, str], folder: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder(environ) == Path(folder.replace("HOME", str(tmp_path)))


def test_a_relative_cache_folder_becomes_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert cache_folder({"HEADWAY_CACHE": "models"}) == tmp_path / "models"


def test_no_home_is_an_error_that_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home(_path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", no_home)
    with pytest.raises(ConfigError, match="set HEADWAY_CACHE"):
        cache_folder({})


def test_every_alias_is_complete() -> None:
    for alias, model in MODELS.items():
        assert model.alias == alias
        assert model.file_name.endswith(".gguf")
        assert "/" not in model.file_name
        assert "==" in model.requirement
        assert len(bytes.fromhex(model.sha256)) == 32
        assert model.sha256 == model.sha256.lower()


def test_an_unknown_alias_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        ConfigError, match=r"Unknown model 'gpt-9': use one of smollm2, the path of a \.gguf file"
    ):
        find_model("gpt-9")


def test_a_shape_is_left_to_perf() -> None:
    with pytest.raises(ConfigError, match=r"shape:llama-1\.4b .*only `headway perf` takes one"):
        parse_source("shape:llama-1.4b")


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("smollm2", MODELS["smollm2"]),
        ("./m", "m"),
        ("m.gguf", "m.gguf"),
        ("folder/m.gguf", "folder/m.gguf"),
        ("/models/m.gguf", "/models/m.gguf"),
        ("a/b/c", "a/b/c"),
        ("owner/name", HubName(repository="owner/name")),
        ("owner/name@v1", HubName(repository="owner/name", revision="v1")),
        ("owner/name:m.gguf", HubName(repository="owner/name", choice="m.gguf")),
        ("hf.co/owner/name", HubName(repository="owner/name")),
    ],
)
def test_what_a_name_means(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, meaning: WheelModel | HubName | str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_source(name) == (tmp_path / meaning if isinstance(meaning, str) else meaning)


@pytest.mark.parametrize("name", ["", "gpt-9", "nul\0"])
def test_what_means_nothing_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="Unknown model"):
        parse_source(name)


def test_a_part_of_a_model_is_answered_with_its_folder(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ConfigError, match=f"name its folder, {tmp_path}"):
        parse_source(str(tmp_path / "model.safetensors"))
    with pytest.raises(ConfigError, match="name its folder"):
        parse_source("missing/model-00001-of-00002.safetensors")


def test_what_exists_under_a_path_wins_over_a_hubs_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights").touch()
    (tmp_path / "owner" / "name").mkdir(parents=True)
    assert parse_source("weights") == tmp_path / "weights"
    assert parse_source("owner/name") == tmp_path / "owner" / "name"
    assert parse_source("owner/other") == HubName(repository="owner/other")


def test_an_alias_wins_over_a_path_which_a_dot_reaches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2").mkdir()
    assert parse_source("smollm2") == MODELS["smollm2"]
    assert parse_source("./smollm2") == tmp_path / "smollm2"


@pytest.mark.parametrize(
    ("name", "served"),
    [
        ("smollm2", "smollm2"),
        ("/models/My-Model.Q8_0.gguf", "My-Model.Q8_0"),
        ("/models/M-Q8_0-00001-of-00003.gguf", "M-Q8_0"),
        ("/models/Llama-3.1-8B", "Llama-3.1-8B"),
        ("/hub/models--owner--name/snapshots/c0ffee", "owner/name"),
        ("owner/name@v1:Q4_K_M", "owner/name"),
    ],
)
def test_served_names(name: str, served: str) -> None:
    assert served_name(name) == served


def test_what_means_nothing_has_no_served_name() -> None:
    with pytest.raises(ConfigError):
        served_name("gpt-9")


def test_the_digest_of_a_cached_file_is_known_if_its_size_is_right(tmp_path: Path) -> None:
    model = MODELS["smollm2"]
    path = cached_path(model, tmp_path)
    assert known_sha256(path, tmp_path) is None
    path.parent.mkdir()
    path.touch()
    assert known_sha256(path, tmp_path) is None
    with path.open("wb") as stream:
        stream.truncate(model.num_bytes)  # sparse: takes no space
    assert known_sha256(path, tmp_path) == model.sha256
    assert known_sha256(tmp_path / "other.gguf", tmp_path) is None
