"""`headway serve owner/name`: from a hub on a loopback port to an answer, and from the cache when the hub is gone."""

from collections.abc import Callable
from pathlib import Path

import pytest

from support.checkpoints import case_named, write_checkpoint
from support.hub_server import HubModel, hub_server
from support.real_server import headway, real_server

pytestmark = pytest.mark.native


def gguf_files(tiny_model: Path, _folder: Path) -> dict[str, bytes]:
    return {"tiny.gguf": tiny_model.read_bytes(), "README.md": b""}


def folder_files(_tiny_model: Path, folder: Path) -> dict[str, bytes]:
    written = write_checkpoint(folder, case_named("qwen3"), "folder")
    return {
        str(path.relative_to(written)): path.read_bytes() for path in written.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("files", [gguf_files, folder_files])
def test_a_hubs_model_is_fetched_served_and_stays(
    files: Callable[[Path, Path], dict[str, bytes]],
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    name = Path("owner/name")
    with hub_server({"owner/name": HubModel(files(tiny_model, tmp_path))}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        with real_server(name, tmp_path) as server:
            assert [model["id"] for model in server.get("/v1/models").json()["data"]] == ["owner/name"]
            answer = server.complete("return", model="owner/name", max_tokens=8).json()["choices"][0]["text"]
            assert "Fetching owner/name (" in server.stderr
    with real_server(name, tmp_path) as server:  # nobody answers at that address any more
        assert server.complete("return", max_tokens=8).json()["choices"][0]["text"] == answer
        assert "Fetching" not in server.stderr
    listed = headway("models").stdout
    assert "owner/name " in listed
    assert "broken" not in listed
    assert "Headway can run it" in headway("inspect", "owner/name").stdout
