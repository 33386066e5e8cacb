"""What serving adds is found again, where a simulation with known costs stands for the server."""

from collections.abc import Sequence

import msgspec
import pytest

from headway.core.config import SchedulerConfig
from headway.core.errors import ConfigError
from headway.lab.exchange import Exchange
from headway.lab.run_options import RunOptions
from headway.simulator.calibration import FORMAT, TERMS, CalibratedCost, Calibration, Fit, MachineRunner
from headway.simulator.fit import fit_sum
from headway.simulator.loader import Service
from headway.simulator.prompts import EstimatedPrompts
from headway.simulator.simulation import records, simulated_endpoint
from headway.simulator.time_engine import time_engine
from headway.simulator.time_serving import time_serving
from support.simulated import MS, VOCABULARY

STEPS = dict.fromkeys(TERMS, 0.0) | {"constant": 4.0 * MS, "drawn": 0.1 * MS, "pairs": 100.0}
STEPS |= {term: 0.3 * MS for term in TERMS if term.startswith("rows")}
LIKE = RunOptions(endpoint=simulated_endpoint("test"))


def machine() -> Calibration:
    return Calibration(
        format=FORMAT,
        headway="0",
        model="m",
        settings={},
        runner=MachineRunner(vocab_size=VOCABULARY, max_context=8192, num_blocks=4096, block_size=16),
        coefficients=STEPS,
        fit=Fit(num_fitted=1, fitted_median=0.0, num_held_out=1, held_out_median=0.0, held_out_p90=0.0),
    )


class Server:
    """Answers as a simulation with costs of its own."""

    def __init__(self, found: Calibration, scheduler: SchedulerConfig) -> None:
        self.asked: list[str] = []
        self._service = Service(
            name="m",
            runner=found.info(),
            step=CalibratedCost(found),
            serving=found.serving,
            scheduler=scheduler,
        )

    def measure(self, options: RunOptions) -> Sequence[Exchange]:
        self.asked.append(f"{options.workload} {options.arrival}")
        return records(options, self._service, EstimatedPrompts(VOCABULARY))


def test_costs_of_serving_are_found_again() -> None:
    limits = SchedulerConfig(policy="fcfs", itl_target_s=None, max_draft_tokens=0)
    true = msgspec.structs.replace(
        machine(),
        serving_step_ns=(0.3 * MS, 0.05 * MS),
        serving_factor=0.8,
        request_ns=2.0 * MS,
        prompt_token_ns=5000.0,
    )
    server = Server(true, limits)
    found = time_serving(machine(), limits, EstimatedPrompts(VOCABULARY), LIKE, server.measure)
    assert found.serving_step_ns == pytest.approx(true.serving_step_ns, rel=0.1)  # not always 12 streams
    assert found.request_ns == pytest.approx(true.request_ns, rel=0.05)
    assert found.prompt_token_ns == pytest.approx(true.prompt_token_ns, rel=0.05)
    assert found.serving_factor == pytest.approx(true.serving_factor, rel=0.02)
    assert server.asked[0] == "context:64:repeat closed:12"  # warms it up


def test_a_server_that_refuses_is_no_measurement() -> None:
    limits = SchedulerConfig(policy="fcfs", max_draft_tokens=0)
    short = msgspec.structs.replace(limits, max_num_seqs=1, max_queued_requests=1)
    server = Server(machine(), short)
    with pytest.raises(ConfigError, match="The server failed while it was measured: 1 requests wait already"):
        time_serving(machine(), limits, EstimatedPrompts(VOCABULARY), LIKE, server.measure)


def test_the_engines_own_python_takes_time_for_each_sequence() -> None:
    base_ns, sequence_ns = time_engine(SchedulerConfig(policy="fcfs"))
    assert base_ns >= 0
    assert sequence_ns > 0


def test_what_cannot_be_fitted_exactly_is_off_by_a_share_of_each_wait() -> None:
    rows = [(1.0, 10.0), (1.0, 1000.0)]
    waits = [5.0, 0.0]  # no weight above zero fits both
    assert fit_sum(rows, waits, [1.0, 1.0]) == pytest.approx([2.5, 0.0])
    by_share, _ = fit_sum(rows, waits, [20.0, 1000.0])
    assert by_share == pytest.approx(5.0, rel=0.01)
