"""`headway serve owner/name`: from a hub on a loopback port to an answer, and from the cache when the hub is gone."""

from pathlib import Path

import pytest

from support.hub_server import HubModel, hub_server
from support.real_server import headway, real_server

pytestmark = pytest.mark.native


def test_a_hubs_model_is_fetched_served_and_stays(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    name = Path("owner/name")
    with hub_server(
        {"owner/name": HubModel({"tiny.gguf": tiny_model.read_bytes(), "README.md": b""})}
    ) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        with real_server(name, tmp_path) as server:
            assert [model["id"] for model in server.get("/v1/models").json()["data"]] == ["owner/name"]
            answer = server.complete("return", model="owner/name", max_tokens=8).json()["choices"][0]["text"]
            assert "Fetching owner/name (1 file, " in server.stderr
    with real_server(name, tmp_path) as server:  # nobody answers at that address any more
        assert server.complete("return", max_tokens=8).json()["choices"][0]["text"] == answer
        assert "Fetching" not in server.stderr
    listed = headway("models").stdout
    assert "owner/name " in listed
    assert headway("inspect", "owner/name").status == 0
