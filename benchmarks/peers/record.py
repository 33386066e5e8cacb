"""The results file: one JSON object, written whole after every sweep and case, so that a run goes on where it was ended."""

import json
from pathlib import Path
from typing import Any

_PARTS = {"cases", "sweeps"}


class Record:
    """What was measured so far. `data` is what the file holds; whoever changes it calls `save`.

    Raises ValueError for a file that is no results file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = read_results(path) if path.exists() else {}

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
        """Note where and how it is measured; raises what `check` does."""
        self.check(facts)
        models = self.data.get("models", {}) | facts["models"]
        self.data.update(facts | {"models": models})

    def check(self, facts: dict[str, Any]) -> None:
        """Raise ValueError if the file is another machine's or thread count's."""
        for name in ("machine", "threads"):
            known = self.data.get(name, facts[name])
            if _comparable(known) != _comparable(facts[name]):
                raise ValueError(
                    f"{self.path.name} was measured with another {name}: {known}; take another --out"
                )

    def forget_case(self, case: str) -> None:
        """Drop what was measured of a case."""
        self.cases.pop(case, None)

    def forget_sweep(self, case: str) -> None:
        """Drop the settings that were found with a case."""
        self.sweeps.pop(case, None)

    def save(self) -> None:
        """Write the file, whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.data, indent=1, ensure_ascii=False) + "\n")
        part.rename(self.path)


def read_results(path: Path) -> dict[str, Any]:
    """Return what a results file holds; raises ValueError, one line, if it is none."""
    try:
        data: Any = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not a results file: {error}") from error
    if not isinstance(data, dict) or not data.keys() >= {"machine", "threads"} or not data.keys() & _PARTS:
        raise ValueError(f"{path} is not a results file: it has no machine, threads and cases")
    for name in _PARTS & data.keys():
        if not isinstance(data[name], dict) or not all(isinstance(one, dict) for one in data[name].values()):
            raise ValueError(f"{path} is not a results file: its {name} are malformed")
    if unknown := [
        name for name, found in data.get("cases", {}).items() if not found.keys() & {"runs", "error"}
    ]:
        raise ValueError(f"{path} is not a results file: {', '.join(unknown)} has no runs")
    return data


def _comparable(fact: Any) -> Any:
    return (fact.get("cpu"), fact.get("cores")) if isinstance(fact, dict) else fact
