"""What scheduling promises, shown by the lab: `make bench-scheduling`, described in docs/performance.md.

    PYTHONPATH=benchmarks .venv/bin/python -m scheduling [STEP ...] [--cells knee,high] [--scale 0.2]

A cell for each promise. Servers run on loopback, one at a time, started and ended as in `endpoints`; environments, lock and
results file are those of `peers`. Rates are shares of a capacity that is measured first, so that a cell asks the same of a
slow machine. Nothing here is part of the package.
"""
