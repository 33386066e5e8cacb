"""What import-linter cannot see: the compiled module has no source for it to analyse."""

import ast
from pathlib import Path

import headway

PACKAGE = Path(headway.__file__).parent
MAY_IMPORT_NATIVE = {"runner", "kv"}


def imported_modules(path: Path) -> set[str]:
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return modules


def test_only_runner_and_kv_import_the_native_core() -> None:
    importers = {
        path.relative_to(PACKAGE).parts[0]
        for path in PACKAGE.rglob("*.py")
        if any(module.startswith("headway._native") for module in imported_modules(path))
    }
    assert "runner" in importers
    assert importers <= MAY_IMPORT_NATIVE
