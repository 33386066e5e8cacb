"""The results file: one JSON object, written whole after every sweep and case, so that a run goes on where it was ended."""

import json
from pathlib import Path
from typing import Any


class Record:
    """What was measured so far. `data` is what the file holds; whoever changes it calls `save`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}

    @property
    def sweeps(self) -> dict[str, Any]:
        """By case, by peer: `best` settings and what was `tried`."""
        found: dict[str, Any] = self.data.setdefault("sweeps", {})
        return found

    @property
    def cases(self) -> dict[str, Any]:
        """By case: its runs and what they say."""
        found: dict[str, Any] = self.data.setdefault("cases", {})
        return found

    def describe(self, facts: dict[str, Any]) -> None:
        """Note where and how it is measured; raises ValueError if the file is another machine's or thread count's."""
        for name in ("machine", "threads"):
            known = self.data.get(name, facts[name])
            if _comparable(known) != _comparable(facts[name]):
                raise ValueError(
                    f"{self.path.name} was measured with another {name}: {known}; take another --out"
                )
        models = self.data.get("models", {}) | facts["models"]
        self.data.update(facts | {"models": models})

    def forget(self, case: str) -> None:
        """Drop what was measured of a case."""
        self.sweeps.pop(case, None)
        self.cases.pop(case, None)

    def save(self) -> None:
        """Write the file, whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.data, indent=1, ensure_ascii=False) + "\n")
        part.rename(self.path)


def _comparable(fact: Any) -> Any:
    return (fact["cpu"], fact["cores"]) if isinstance(fact, dict) else fact
