"""What `headway bench` says of the server's own view."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from headway.cli.bench_server_report import as_json, lines
from headway.lab.endpoint import Endpoint
from headway.lab.measurement import RunResult
from headway.lab.metric_page import Bucketed
from headway.lab.run_options import RunOptions
from headway.lab.server_metrics import ServerView
from headway.lab.summary import summarise
from headway.lab.token_estimate import TokenEstimate

TIMES = Bucketed(
    n=50,
    mean=1234.5,
    percentiles={"p50": (20, 40), "p90": (40, 60), "p95": (80_000, float("inf")), "p99": None, "p99.9": None},
)
VIEW = ServerView(
    source="vllm",
    restarted=False,
    num_requests=50,
    num_other_requests=0,
    num_unseen_requests=0,
    prompt_tokens=12_345,
    cached_tokens=None,
    output_tokens=678,
    ttft=TIMES,
    queue=TIMES,
    itl=None,
    tpot=None,
    e2e=None,
)
RESULT = RunResult(
    options=RunOptions(endpoint=Endpoint(host="x", port=1, path="/v1")),
    model="m",
    arrival="closed:1",
    started_at=datetime(2026, 11, 30, tzinfo=UTC),
    start_ns=None,
    summary=summarise([], slo=None),
    exchanges=(),
    lag_p99_ns=0,
    interrupted=False,
    server=VIEW,
)


def test_both_sides_stand_together() -> None:
    text = list(lines(RESULT))
    assert [line.split() for line in text if line.startswith(("TTFT", "  the client", "queue", "ITL"))] == [
        ["TTFT", "20", "to", "40", "over", "80,000", "-", "1,234", "50"],
        ["the", "client", "-", "-", "-", "-", "0"],
        ["queue", "20", "to", "40", "over", "80,000", "-", "1,234", "50"],
    ]
    assert text[-1] == "vllm's own metrics counted 50 requests, 12,345 prompt tokens, 678 output tokens"


@pytest.mark.parametrize(
    ("view", "said"),
    [
        (replace(VIEW, restarted=True, num_other_requests=None), "restarted during the run"),
        (replace(VIEW, num_other_requests=17), "17 requests of others"),
        (replace(VIEW, num_unseen_requests=3), "one of several"),
    ],
)
def test_what_makes_it_incomparable_is_said(view: ServerView, said: str) -> None:
    assert said not in "\n".join(lines(RESULT))
    assert said in "\n".join(lines(replace(RESULT, server=view)))


def test_tokens_alone_make_no_table() -> None:
    view = replace(VIEW, source="llama-server", ttft=None, queue=None, num_requests=None)
    assert list(lines(replace(RESULT, server=view))) == [
        "",
        "llama-server's own metrics counted 12,345 prompt tokens, 678 output tokens",
    ]


def test_without_metrics_there_is_not_a_word() -> None:
    silent = replace(RESULT, server=None)
    assert list(lines(silent)) == []
    assert as_json(silent) == {"prompt_lengths": None, "server": None}


@pytest.mark.parametrize(
    ("source", "said"), [("server", "as the server counted"), ("assumed", "an assumption")]
)
def test_how_prompts_got_their_lengths_is_said(source: str, said: str) -> None:
    estimate = TokenEstimate(chars_per_token=3.8123, source=source)  # type: ignore[arg-type]
    measured = replace(RESULT, server=None, token_estimate=estimate)
    assert [said in line and "3.81" in line for line in lines(measured)] == [True]
    assert as_json(measured)["prompt_lengths"] == {"chars_per_token": 3.8123, "source": source}
