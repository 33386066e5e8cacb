"""What becomes of a calibration that is stopped. What it measures: tests/simulator."""

import signal
from types import SimpleNamespace

import pytest

from headway.cli import calibration_run
from headway.lab.endpoint import parse_endpoint
from headway.lab.run_options import RunOptions


def test_an_interrupted_measurement_is_taken_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupted(_: RunOptions) -> SimpleNamespace:
        return SimpleNamespace(interrupted=True, exchanges=[])

    monkeypatch.setattr(calibration_run, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        calibration_run._measured(RunOptions(endpoint=parse_endpoint("http://127.0.0.1:1")))


def test_sigterm_unwinds_so_that_the_server_ends() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, calibration_run._exit_on_sigterm():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
