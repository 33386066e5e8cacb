"""Headway against llama-server and vLLM as their users feel them: `make bench-endpoints`, described in docs/performance.md.

    PYTHONPATH=benchmarks .venv/bin/python -m endpoints [STEP ...] [--rounds 3] [--servers headway,vllm]

Each serves the demo model on loopback, one at a time, and `headway bench` measures it. Environments, lock and results file
are those of `peers`. Nothing here is part of the package, and no server is a dependency.
"""
