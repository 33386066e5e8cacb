"""Which settings no other beats."""

from headway.lab.run_options import RunOptions
from headway.simulator.pareto import Point, Setting, frontier, sweep
from headway.simulator.pareto_page import pareto_page
from headway.simulator.prompts import EstimatedPrompts
from headway.simulator.simulation import simulated_endpoint
from support.simulated import MS, VOCABULARY, service


def point(tokens: float, latency: float, device: str = "d") -> Point:
    return Point(
        device=device,
        setting=Setting(num_users=1, max_prefill_tokens=256),
        output_tok_s=tokens,
        e2e_p95_ms=latency,
        ttft_p95_ms=1.0,
        itl_p95_ms=1.0,
    )


def test_a_setting_that_another_beats_in_both_is_not_on_the_frontier() -> None:
    slow, fast, beaten, tied = point(100, 50), point(10, 5), point(50, 60), point(100, 70)
    assert frontier([slow, fast, beaten, tied]) == [fast, slow]
    assert frontier([]) == []


def test_more_users_bring_more_throughput_and_more_latency() -> None:
    like = RunOptions(endpoint=simulated_endpoint("test"), workload="light", output_tokens=8)
    found = sweep(
        "test",
        service(lambda step: (10 + len(step.tokens)) * MS),
        EstimatedPrompts(VOCABULARY),
        like,
        [Setting(num_users=users, max_prefill_tokens=256) for users in (1, 8)],
    )
    assert [each.setting.num_users for each in frontier(found)] == [1, 8]
    assert found[1].output_tok_s > 2 * found[0].output_tok_s
    assert found[1].e2e_p95_ms > found[0].e2e_p95_ms


def test_the_page_shows_every_machine() -> None:
    points = {"<a>": [point(1, 2, "<a>")], "b": [point(2, 3, "b")]}
    page = pareto_page("What throughput costs", ["Simulated, not measured."], points)
    assert "Simulated, not measured." in page
    assert "&lt;a&gt;" in page
    assert "<a>" not in page
