"""Headway against llama.cpp and OpenVINO GenAI on one machine: `make bench-peers`, described in docs/performance.md.

    PYTHONPATH=benchmarks .venv/bin/python -m peers [STEP ...] [--cases a,b] [--repeat 5]

Peers run in environments of their own, as processes that answer a line of JSON with a line of JSON. Headway is measured
through its command line alone. Nothing here is part of the package, and neither peer is a dependency.
"""
