"""A Hugging Face hub on a loopback port: the routes that huggingface_hub asks for a model, and faults on demand.

Big files (`.safetensors`, `.gguf`) are large-file-storage objects behind a redirect, as on the real hub; small ones are
git objects.
"""

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_LARGE = (".safetensors", ".gguf", ".bin")


@dataclass
class HubModel:
    """A repository: its files by name, and what its hub does wrong.

    claimed_size   what it says each large file's size is, if not the truth
    cut_after      transfers of large files end after so many bytes, `num_cuts` times
    hold_at        answers to addresses with this in them wait until `released`
    hold_after     transfers of large files stop after so many bytes until `released`
    """

    files: dict[str, bytes]
    gated: bool = False
    token: str | None = None
    status: int | None = None
    corrupt: bool = False
    claimed_size: int | None = None
    cut_after: int | None = None
    num_cuts: int = 0
    hold_at: str | None = None
    hold_after: int | None = None
    holding: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    @property
    def commit(self) -> str:
        """The id of the only commit, which changes with the files."""
        digest = hashlib.sha1(usedforsecurity=False)
        for name, data in sorted(self.files.items()):
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
        return digest.hexdigest()


@dataclass
class Hub:
    """The server: where it is, what it has, and what it was asked."""

    url: str
    models: dict[str, HubModel]
    requests: list[str] = field(default_factory=list)

    def downloads(self) -> list[str]:
        """The names of the files whose content was asked for, in order."""
        return [
            line.rpartition("/")[2]
            for line in self.requests
            if line.startswith("GET") and "/resolve/" in line
        ]


@contextmanager
def hub_server(models: Mapping[str, HubModel]) -> Iterator[Hub]:
    """Run a hub with `models` by their ids while the context lasts."""

    class Handler(_Handler):
        pass

    server = _Server(("127.0.0.1", 0), Handler)
    hub = Hub(f"http://127.0.0.1:{server.server_address[1]}", dict(models))
    Handler.hub = hub
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        for model in hub.models.values():
            model.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Take no notice: clients of these tests are killed in the middle of a transfer."""


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass

    def _answer(self) -> None:
        path = urlsplit(self.path).path
        self.hub.requests.append(f"{self.command} {path}")
        match = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+))?", path) or re.fullmatch(
            r"/([^/]+/[^/]+)/(resolve|cdn)/([^/]+)/(.+)", path
        )
        if match is None:
            return self._error(404, "EntryNotFound")
        model = self.hub.models.get(match[1])
        if model is None:
            return self._error(404, "RepoNotFound")
        if model.hold_at is not None and model.hold_at in path:
            model.holding.set()
            model.released.wait(60)
        if model.status is not None:
            return self._error(model.status, "")
        if model.gated and match[2] in ("resolve", "cdn"):  # what there is may be listed
            return self._error(403, "GatedRepo")
        if model.token is not None and self.headers["Authorization"] != f"Bearer {model.token}":
            return self._error(401, "")
        if match[3] not in (None, "main", model.commit):
            return self._error(404, "RevisionNotFound")
        if match[2] == "tree":
            return self._json([_tree_entry(name, data) for name, data in model.files.items()])
        if match[2] in (None, "revision"):
            return self._json(_info(match[1], model))
        name = match[4]
        if name not in model.files:
            return self._error(404, "EntryNotFound")
        return self._file(match[1], model, name, behind_redirect=match[2] == "cdn")

    def _file(self, repository: str, model: HubModel, name: str, *, behind_redirect: bool) -> None:
        data = model.files[name]
        large = name.endswith(_LARGE)
        headers = {"X-Repo-Commit": model.commit, "ETag": f'"{_blob_id(data)}"', "Accept-Ranges": "bytes"}
        if large:
            headers |= {
                "X-Linked-Size": str(len(data)),
                "X-Linked-ETag": f'"{hashlib.sha256(data).hexdigest()}"',
            }
        if large and not behind_redirect:
            headers["Location"] = f"{self.hub.url}/{repository}/cdn/{model.commit}/{name}"
            return self._send(302, b"", headers)
        start = 0
        if wanted := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")):
            start = int(wanted[1])
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        if model.corrupt and large:
            data = bytes(byte ^ 1 for byte in data)
        return self._send(206 if start else 200, data[start:], headers, model if large else None)

    def _send(
        self, status: int, body: bytes, headers: Mapping[str, str], faults: HubModel | None = None
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        try:
            if faults is not None and faults.num_cuts > 0:
                faults.num_cuts -= 1
                self.wfile.write(body[: faults.cut_after])
                self.close_connection = True
            elif faults is not None and faults.hold_after is not None:
                self.wfile.write(body[: faults.hold_after])
                faults.holding.set()
                faults.released.wait(60)
                self.wfile.write(body[faults.hold_after :])
            else:
                self.wfile.write(body)
        except OSError:  # the client has left
            self.close_connection = True

    def _json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _error(self, status: int, code: str) -> None:
        self._send(status, b"{}", {"X-Error-Code": code, "Content-Type": "application/json"})


def _blob_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _info(repository: str, model: HubModel) -> dict[str, object]:
    siblings = []
    for name, data in model.files.items():
        sibling: dict[str, object] = {"rfilename": name, "size": len(data), "blobId": _blob_id(data)}
        if name.endswith(_LARGE):
            sibling["size"] = model.claimed_size or len(data)
            sibling["lfs"] = {
                "sha256": hashlib.sha256(data).hexdigest(),
                "size": len(data),
                "pointerSize": 128,
            }
        siblings.append(sibling)
    return {"id": repository, "sha": model.commit, "siblings": siblings, "private": False, "tags": []}


def _tree_entry(name: str, data: bytes) -> dict[str, object]:
    entry: dict[str, object] = {"type": "file", "oid": _blob_id(data), "size": len(data), "path": name}
    if name.endswith(_LARGE):
        entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 128}
    return entry
