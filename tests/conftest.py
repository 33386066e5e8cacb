"""Fixtures every test may use, and what turns a skip into a failure where everything must run."""

import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import settings

# Before numpy is imported: the threads of its matrix products wait for each other by spinning, which made references in
# numpy five times as slow on a busy machine (26 s of CPU time against 5 s for tests/accuracy/test_plans.py).
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# `nohup` and a shell's `&` leave these ignored, which every process that tests start, and want to end by them, inherits.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes is the machine's business.
settings.register_profile("headway", deadline=None)
settings.load_profile("headway")

REQUIRE_ALL = bool(os.environ.get("HEADWAY_REQUIRE_ALL"))


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio, the loop that the gateway runs on."""
    return "asyncio"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Under HEADWAY_REQUIRE_ALL a skipped test is a failed test."""
    report = yield
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped under HEADWAY_REQUIRE_ALL: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a module that skips itself while it is collected."""
    report = yield
    if REQUIRE_ALL and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} was skipped under HEADWAY_REQUIRE_ALL"
    return report
