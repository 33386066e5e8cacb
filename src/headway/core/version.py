"""The version of Headway, in one place (pyproject.toml repeats it; a test compares them)."""

__version__ = "0.1.0"
