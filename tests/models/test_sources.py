from pathlib import Path

import pytest

from headway.core.errors import ConfigError
from headway.models import sources
from headway.models.sources import MODELS, cache_folder, cached_path, find_model, known_sha256, list_models


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
        ConfigError, match=r"Unknown model 'gpt-9': use one of smollm2, or the path of a \.gguf"
    ):
        find_model("gpt-9")


@pytest.mark.parametrize(
    ("name", "is_file"),
    [
        ("smollm2", False),
        ("gpt-9", False),
        ("", False),
        ("./m", True),
        ("m.gguf", True),
        ("/models/m.gguf", True),
    ],
)
def test_paths_and_aliases_are_told_apart(name: str, is_file: bool) -> None:
    assert sources.names_file(name) is is_file


def test_a_file_without_suffix_in_the_current_folder_is_a_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights").touch()
    assert sources.names_file("weights")


def test_served_names() -> None:
    assert sources.served_name("smollm2") == "smollm2"
    assert sources.served_name("/models/My-Model.Q8_0.gguf") == "My-Model.Q8_0"
    with pytest.raises(ConfigError):
        sources.served_name("gpt-9")


def test_the_list_tells_what_is_cached_by_size(tmp_path: Path) -> None:
    (listing,) = list_models(tmp_path)
    assert (listing.model.alias, listing.cached) == ("smollm2", False)
    assert known_sha256(listing.path, tmp_path) is None

    listing.path.parent.mkdir()
    listing.path.touch()
    assert not list_models(tmp_path)[0].cached

    with listing.path.open("wb") as stream:
        stream.truncate(listing.model.num_bytes)  # sparse: takes no space
    assert list_models(tmp_path)[0].cached
    assert listing.path == cached_path(listing.model, tmp_path)
    assert known_sha256(listing.path, tmp_path) == listing.model.sha256
    assert known_sha256(tmp_path / "other.gguf", tmp_path) is None
