import json
import subprocess
import sys
from pathlib import Path

import pytest

from headway.models.hub_cache import cached_model, hub_cache_folder, listed_files
from headway.models.hub_name import HubName

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = HubName(repository="owner/name")


def make_cache(cache: Path, files: list[str], listed: list[str] | None = None) -> Path:
    """Lay out a repository with `files` in its snapshot; `listed` is what the client noted. Return the snapshot."""
    repository = cache / "models--owner--name"
    snapshot = repository / "snapshots" / COMMIT
    for folder in (repository / "refs", repository / "blobs", repository / "trees", snapshot):
        folder.mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    for index, file in enumerate(files):
        (repository / "blobs" / str(index)).touch()
        (snapshot / file).symlink_to(f"../../blobs/{index}")
    if listed is not None:
        tree = {"format_version": 1, "files": {file: {"size": 0, "blob_id": "0"} for file in listed}}
        (repository / "trees" / f"{COMMIT}.json").write_text(json.dumps(tree))
    return snapshot


WHOLE = ["config.json", "model.safetensors", "tokenizer.json"]


def test_a_whole_model_is_found_by_branch_and_by_commit(tmp_path: Path) -> None:
    snapshot = make_cache(tmp_path, WHOLE, [*WHOLE, "README.md"])
    assert cached_model(NAME, tmp_path) == snapshot
    assert cached_model(HubName(repository="owner/name", revision=COMMIT), tmp_path) == snapshot
    assert cached_model(HubName(repository="owner/name", revision="v1"), tmp_path) is None
    assert cached_model(HubName(repository="owner/other"), tmp_path) is None


def test_a_model_that_lacks_a_file_is_not_found(tmp_path: Path) -> None:
    make_cache(tmp_path, WHOLE[:2], WHOLE)
    assert cached_model(NAME, tmp_path) is None


def test_a_file_whose_blob_is_gone_is_missing(tmp_path: Path) -> None:
    make_cache(tmp_path, WHOLE, WHOLE)
    (tmp_path / "models--owner--name" / "blobs" / "1").unlink()
    assert cached_model(NAME, tmp_path) is None


def test_without_the_clients_list_what_lies_there_counts_only_if_asked_so(tmp_path: Path) -> None:
    snapshot = make_cache(tmp_path, WHOLE)
    assert cached_model(NAME, tmp_path) is None
    assert cached_model(NAME, tmp_path, unlisted=True) == snapshot
    assert (
        cached_model(HubName(repository="owner/name", choice="Q4_0"), tmp_path, unlisted=True) is None
    )  # no such file


def test_one_gguf_of_several_needs_no_other(tmp_path: Path) -> None:
    snapshot = make_cache(tmp_path, ["m-Q8_0.gguf"], ["m-Q4_0.gguf", "m-Q8_0.gguf"])
    assert cached_model(HubName(repository="owner/name", choice="Q8_0"), tmp_path) == snapshot / "m-Q8_0.gguf"
    assert cached_model(HubName(repository="owner/name", choice="Q4_0"), tmp_path) is None


@pytest.mark.parametrize(
    "tree",
    [
        "", "[]", "1", '{"format_version": 2, "files": {}}', '{"format_version": 1}',
        '{"format_version": 1, "files": 3}', '{"format_version": 1, "files": [7]}', "[" * 100_000, "\xff",
    ],
)  # fmt: skip
def test_a_list_that_we_do_not_understand_is_none(tmp_path: Path, tree: str) -> None:
    (tmp_path / "trees").mkdir()
    (tmp_path / "trees" / f"{COMMIT}.json").write_text(tree, encoding="latin-1")
    assert listed_files(tmp_path, COMMIT) is None


def test_names_that_climb_out_are_not_listed(tmp_path: Path) -> None:
    (tmp_path / "trees").mkdir()
    tree = {"format_version": 1, "files": {"../x": {}, "/etc/passwd": {}, "a/../../b": {}, "": {}, "ok": {}}}
    (tmp_path / "trees" / f"{COMMIT}.json").write_text(json.dumps(tree))
    assert listed_files(tmp_path, COMMIT) == ["ok"]


def test_a_reference_that_names_no_commit_is_no_model(tmp_path: Path) -> None:
    make_cache(tmp_path, WHOLE, WHOLE)
    reference = tmp_path / "models--owner--name" / "refs" / "main"
    for content in ("", "../../../../etc", "v1", "0" * 39):
        reference.write_text(content)
        assert cached_model(NAME, tmp_path) is None
    reference.write_bytes(b"\xff")
    assert cached_model(NAME, tmp_path) is None


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"HF_HOME": "/a"},
        {"HF_HOME": "~/a"},
        {"HF_HUB_CACHE": "/b"},
        {"HF_HOME": "/a", "HF_HUB_CACHE": "$HF_HOME/b"},
        {"HUGGINGFACE_HUB_CACHE": "/c", "HF_HOME": "/a"},
        {"XDG_CACHE_HOME": "/d"},
    ],
)
def test_the_cache_lies_where_the_client_has_it(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    code = "import runpy; print(runpy.run_path(__import__('sys').argv[1])['HF_HUB_CACHE'])"
    constants = _constants_file()
    done = subprocess.run([sys.executable, "-c", code, constants], capture_output=True, text=True, check=True)
    assert str(hub_cache_folder()) == done.stdout.strip()


def _constants_file() -> str:
    import huggingface_hub

    return str(Path(huggingface_hub.__file__).with_name("constants.py"))
