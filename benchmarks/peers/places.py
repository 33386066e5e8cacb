"""Where things lie: a cache for environments and models, the repository for results.

The cache is $HEADWAY_PEERS_CACHE, else $XDG_CACHE_HOME/headway-peers, else ~/.cache/headway-peers.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
RESULTS = ROOT / "bench" / "results"
DOCUMENT = ROOT / "docs" / "performance.md"

LLAMA_CPP = "llama.cpp"
OPENVINO = "openvino"
VLLM = "vllm"
AIPERF = "aiperf"
HEADWAY = "headway"


def default_cache(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of environments and models; it may not exist yet."""
    if chosen := environ.get("HEADWAY_PEERS_CACHE"):
        return Path(chosen).expanduser().absolute()
    xdg = Path(environ.get("XDG_CACHE_HOME", ""))
    base = xdg if xdg.is_absolute() else Path("~/.cache").expanduser()  # XDG: ignore relative paths
    return base / "headway-peers"


@dataclass(frozen=True, slots=True)
class Cache:
    """The cache's layout."""

    root: Path

    def environment(self, peer: str) -> Path:
        """The virtual environment of a peer."""
        return self.root / f"venv-{'llama' if peer == LLAMA_CPP else peer}"

    def python(self, peer: str) -> Path:
        """The interpreter of a peer."""
        return self.environment(peer) / "bin" / "python"

    @property
    def models(self) -> Path:
        """The folder of models made by `make_models`."""
        return self.root / "models"
