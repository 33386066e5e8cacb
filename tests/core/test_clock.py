import subprocess
import sys

from headway.core.clock import MonotonicClock


def test_processes_of_one_machine_read_one_clock() -> None:
    program = "from headway.core.clock import MonotonicClock; print(MonotonicClock().now_ns())"
    clock = MonotonicClock()
    before_ns = clock.now_ns()
    told = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert before_ns < int(told.stdout) < clock.now_ns()
