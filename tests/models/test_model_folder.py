import os
from pathlib import Path

import pytest

from headway.core.errors import ModelFileError
from headway.models.gguf import read_gguf
from headway.models.hub_cache import hub_repository
from headway.models.model_folder import check_inside, is_folder, read_inside
from headway.models.safetensors import read_safetensors

LFS_POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'4d' * 32}\nsize 988097824\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder with one file, beside a secret."""
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def snapshot(tmp_path: Path) -> Path:
    """A snapshot as the hub cache lays it out: its files are links to blobs."""
    repository = tmp_path / "hub" / "models--owner--name"
    folder = repository / "snapshots" / "c0ffee"
    folder.mkdir(parents=True)
    (repository / "blobs").mkdir()
    (repository / "blobs" / "e7a6").write_text("{}")
    (folder / "config.json").symlink_to("../../blobs/e7a6")
    return folder


def test_a_path_is_a_folder_or_not_or_cannot_be_looked_at(folder: Path) -> None:
    assert is_folder(folder)
    assert not is_folder(folder / "config.json")
    assert not is_folder(folder / "missing")
    with pytest.raises(ModelFileError, match="File name too long"):
        is_folder(folder / ("a" * 300))


def test_a_file_of_the_folder_is_taken(folder: Path) -> None:
    assert check_inside(folder, folder / "config.json") == folder / "config.json"


def test_a_link_within_the_folder_is_followed(folder: Path) -> None:
    (folder / "link").symlink_to("config.json")
    assert check_inside(folder, folder / "link") == folder / "config.json"


def test_the_folder_itself_may_be_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(folder)
    assert check_inside(tmp_path / "latest", tmp_path / "latest" / "config.json") == folder / "config.json"


@pytest.mark.parametrize("target", ["../secret", "{tmp}/secret", "/etc/passwd", "sub/../../secret", "hop"])
def test_a_link_out_of_the_folder_is_refused(folder: Path, tmp_path: Path, target: str) -> None:
    (folder / "sub").mkdir()
    (folder / "hop").symlink_to(tmp_path / "secret")
    (folder / "link").symlink_to(target.format(tmp=tmp_path))
    with pytest.raises(ModelFileError, match="link: is a symbolic link out of the model's folder"):
        check_inside(folder, folder / "link")


def test_a_linked_folder_within_leads_out_as_well(folder: Path, tmp_path: Path) -> None:
    (folder / "1_Pooling").symlink_to(tmp_path)
    with pytest.raises(ModelFileError, match="out of the model's folder"):
        check_inside(folder, folder / "1_Pooling" / "secret")


def test_a_name_that_climbs_out_is_refused(folder: Path) -> None:
    with pytest.raises(ModelFileError, match="out of the model's folder"):
        check_inside(folder, folder / ".." / "secret")


def test_a_folder_beside_with_the_same_beginning_is_not_inside(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "model2").mkdir()
    (tmp_path / "model2" / "file").touch()
    with pytest.raises(ModelFileError, match="out of the model's folder"):
        check_inside(folder, tmp_path / "model2" / "file")


def test_what_is_no_file_is_refused(folder: Path) -> None:
    os.mkfifo(folder / "fifo")
    (folder / "sub").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "broken").symlink_to("nowhere")
    for name, reason in (
        ("fifo", "not a regular file"),
        ("sub", "not a regular file"),
        ("loop", "cannot be read"),
        ("broken", "cannot be read"),
        ("missing", "No such file"),
        ("nul\0", "cannot be read"),
    ):
        with pytest.raises(ModelFileError, match=reason) as caught:
            check_inside(folder, folder / name)
        assert "\n" not in caught.value.message


def test_a_snapshots_links_to_its_blobs_are_taken(tmp_path: Path) -> None:
    folder = snapshot(tmp_path)
    assert check_inside(folder, folder / "config.json") == tmp_path / "hub/models--owner--name/blobs/e7a6"
    assert hub_repository(folder) == (tmp_path / "hub/models--owner--name", "owner/name")


def test_a_blob_that_lies_in_the_caches_shared_store_is_taken(tmp_path: Path) -> None:
    folder = snapshot(tmp_path)
    (tmp_path / "hub" / "blobs" / "ab").mkdir(parents=True)
    (tmp_path / "hub" / "blobs" / "ab" / "abcd").touch()
    (folder.parent.parent / "blobs" / "abcd").symlink_to("../../blobs/ab/abcd")
    (folder / "model.safetensors").symlink_to("../../blobs/abcd")
    assert check_inside(folder, folder / "model.safetensors") == tmp_path / "hub/blobs/ab/abcd"


@pytest.mark.parametrize(
    "target", ["../../../models--other--name/blobs/e7a6", "../../refs/main", "/etc/passwd"]
)
def test_a_snapshots_link_elsewhere_is_refused(tmp_path: Path, target: str) -> None:
    folder = snapshot(tmp_path)
    other = tmp_path / "hub" / "models--other--name" / "blobs"
    other.mkdir(parents=True)
    (other / "e7a6").touch()
    (folder.parent.parent / "refs").mkdir()
    (folder.parent.parent / "refs" / "main").touch()
    (folder / "link").symlink_to(target)
    with pytest.raises(ModelFileError, match="out of the model's folder"):
        check_inside(folder, folder / "link")


def test_a_folder_that_only_looks_like_a_snapshot_gains_nothing(folder: Path) -> None:
    assert hub_repository(folder) is None


def test_what_git_lfs_left_in_a_files_place_is_named_as_such(folder: Path) -> None:
    (folder / "tokenizer.json").write_text(LFS_POINTER)
    with pytest.raises(ModelFileError, match=r"tokenizer.json: is a Git LFS pointer, .* `git lfs pull`"):
        read_inside(folder, "tokenizer.json", max_bytes=1000)
    (folder / "model.safetensors").write_text(LFS_POINTER)
    with pytest.raises(ModelFileError, match=r"model.safetensors: is a Git LFS pointer"):
        read_safetensors(folder / "model.safetensors")
    (folder / "model.gguf").write_text(LFS_POINTER)
    with pytest.raises(ModelFileError, match=r"model.gguf: is a Git LFS pointer"):
        read_gguf(folder / "model.gguf")
