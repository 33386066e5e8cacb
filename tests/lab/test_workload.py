"""What a workload sends: the same for the same seed, never the same code twice, and as long as asked."""

import hashlib
import os
import subprocess
import sys
from collections import Counter
from itertools import islice, takewhile
from pathlib import Path

import msgspec
import pytest

from headway.core.errors import ConfigError
from headway.lab.chat_body import chat_body
from headway.lab.code_corpus import CodeCorpus, SourceFile, standard_library
from headway.lab.token_estimate import estimated
from headway.lab.trace_prompts import trace_conversations
from headway.lab.traces import parse_trace, read_trace
from headway.lab.workload import (
    Conversation,
    Message,
    WorkloadOptions,
    WorkloadRequest,
    conversations,
    num_planned,
    up_to,
)
from headway.lab.workload_spec import Mixed, TraceFile, parse_workload

DATA = Path(__file__).parent / "data"
FORMS = [
    "light",
    "medium",
    "multi-turn",
    "shared-prefix:2:3",
    "context:256,1k",
    "mixed:light=0.5,medium=0.3,context:256=0.2",
]
FILES = (SourceFile("app.py", tuple(f"value_{line} = {line}" for line in range(60_000))),)


def planned(
    form: str, num: int, seed: int = 1, *, options: WorkloadOptions | None = None
) -> list[Conversation]:
    workload = parse_workload(form)
    assert not isinstance(workload, TraceFile)
    corpus = CodeCorpus(FILES, seed)
    return list(islice(conversations(workload, corpus, options or WorkloadOptions(seed)), num))


def bodies(made: list[Conversation]) -> list[bytes]:
    """Every turn's body, with answers that are always the same."""
    return [
        chat_body(one.request([f"Answer {turn}." for turn in range(answered)]), "model", seed=1)
        for one in made
        for answered in range(one.num_turns)
    ]


def common_prefix(one: str, other: str) -> str:
    return "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def code_lines(made: list[Conversation]) -> list[str]:
    texts = [text for one in made for text in one.user_turns]
    return [line for text in texts for line in text.split("\n") if line.startswith("value_")]


@pytest.mark.parametrize("form", FORMS)
def test_one_seed_sends_identical_bytes_and_another_does_not(form: str) -> None:
    first = bodies(planned(form, 12))
    assert bodies(planned(form, 12)) == first
    assert bodies(planned(form, 12, seed=2)) != first


def test_another_process_sends_identical_bytes() -> None:
    script = (
        "import hashlib, itertools\n"
        "from headway.lab.chat_body import chat_body\n"
        "from headway.lab.code_corpus import CodeCorpus, standard_library\n"
        "from headway.lab.workload import WorkloadOptions, conversations\n"
        "from headway.lab.workload_spec import parse_workload\n"
        f"plan = conversations(parse_workload({FORMS[-1]!r}), CodeCorpus(standard_library(), 4), WorkloadOptions(4))\n"
        "bodies = [chat_body(one.request(), 'm') for one in itertools.islice(plan, 40)]\n"
        "print(hashlib.sha256(b''.join(bodies)).hexdigest())\n"
    )
    digests = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        digests.add(
            subprocess.check_output([sys.executable, "-c", script], env=environment, text=True).strip()
        )
    workload = parse_workload(FORMS[-1])
    assert isinstance(workload, Mixed)
    plan = conversations(workload, CodeCorpus(standard_library(), 4), WorkloadOptions(4))
    here = b"".join(chat_body(one.request(), "m") for one in islice(plan, 40))
    assert digests == {hashlib.sha256(here).hexdigest()}


@pytest.mark.parametrize("form", FORMS)
def test_conversations_are_numbered_and_a_longer_plan_begins_with_the_shorter(form: str) -> None:
    made = planned(form, 20)
    assert [one.number for one in made] == list(range(20))
    assert made[:7] == planned(form, 7)


@pytest.mark.parametrize("form", FORMS[1:])
def test_code_is_never_sent_twice(form: str) -> None:
    lines = code_lines(planned(form, 30))
    assert lines
    assert len(lines) == len(set(lines))


def test_code_is_sent_again_when_the_workload_says_so() -> None:
    with pytest.raises(ConfigError, match=":repeat"):
        planned("medium", 201)
    assert len(planned("medium", 200)) == 200
    assert len(planned("medium:repeat", 300)) == 300


def test_light_prompts_are_all_under_50_characters_and_different() -> None:
    prompts = [one.user_turns[0] for one in planned("light", 864)]
    assert max(map(len, prompts)) < 50
    assert len(set(prompts)) == 864
    assert {one.user_turns[0] for one in planned("light", 1728)} == set(prompts)


def test_medium_prompts_have_300_lines_and_differ_from_their_first_word_on() -> None:
    made = planned("medium", 50)
    assert {len(code_lines([one])) for one in made} == {300}
    assert len({one.user_turns[0].split("\n")[0] for one in made}) == 50


def test_a_turn_contains_what_was_said_before_it() -> None:
    [one] = planned("multi-turn", 1)
    assert one.num_turns == 5
    first = one.request()
    assert (first.turn, first.messages) == (1, (Message("user", one.user_turns[0]),))
    third = one.request(["Yes.", ""])
    assert third == WorkloadRequest(
        messages=(
            Message("user", one.user_turns[0]),
            Message("assistant", "Yes."),
            Message("user", one.user_turns[1]),
            Message("assistant", ""),
            Message("user", one.user_turns[2]),
        ),
        max_output_tokens=128,
        conversation=0,
        turn=3,
        label="multi-turn",
    )
    assert one.request(["a"] * 4).turn == 5
    with pytest.raises(ValueError, match="only 5 turns"):
        one.request(["a"] * 5)


def test_the_lines_of_a_conversation_grow_by_a_fifth_per_turn() -> None:
    [one] = planned("multi-turn:3", 1)
    assert [turn.count("value_") for turn in one.user_turns] == [100, 20, 20]


def test_groups_share_a_prefix_and_nothing_else() -> None:
    made = planned("shared-prefix:3:4", 24)
    prefixes = {one.group: one.system for one in made}
    assert len(set(prefixes.values())) == 6
    assert all(one.system == prefixes[one.group] for one in made)
    assert all(str(prefix).count("value_") == 300 for prefix in prefixes.values())
    assert Counter(one.group for one in made[:12]) == {0: 4, 1: 4, 2: 4}
    assert Counter(one.group for one in made[12:]) == {3: 4, 4: 4, 5: 4}
    assert len({one.user_turns for one in made}) == 24
    request = made[0].request()
    assert [message.role for message in request.messages] == ["system", "user"]
    assert request.group == made[0].group


@pytest.mark.parametrize(
    ("form", "num"), [("light", 7), ("multi-turn:3", 7), ("mixed:light=1,multi-turn:4=1", 23)]
)
def test_conversations_go_on_until_they_have_so_many_requests(form: str, num: int) -> None:
    endless = iter(planned(form, 60))
    made = list(up_to(num, endless))
    turns = [one.num_turns for one in made]
    assert sum(turns) - turns[-1] < num <= sum(turns)
    assert next(endless).number == len(made)  # none was made in vain: code is used up by it
    assert len(list(up_to(None, iter(planned(form, 60))))) == 60
    assert list(up_to(10**9, iter(planned(form, 5)))) == planned(form, 5)


def test_a_shared_prefix_names_its_own_number_of_conversations() -> None:
    shared, light = parse_workload("shared-prefix:3:4"), parse_workload("light")
    assert not isinstance(shared, TraceFile)
    assert not isinstance(light, TraceFile)
    assert (num_planned(shared), num_planned(light)) == (12, None)


def test_contexts_have_their_lengths_in_turn_to_less_than_a_line() -> None:
    count = estimated(4.2)
    made = planned("context:256,1k", 20, options=WorkloadOptions(1, count_tokens=count))
    assert [one.label for one in made[:3]] == ["context:256", "context:1024", "context:256"]
    for one, length in zip(made, [256, 1024] * 10, strict=True):
        assert length - count("value_59999 = 59999\n") <= count(one.user_turns[0]) <= length


def test_contexts_that_do_not_fit_the_model_are_refused_before_anything_is_sent() -> None:
    fitting = WorkloadOptions(1, output_tokens=100, max_context_tokens=1024 + 100 + 32)
    assert len(planned("context:1k", 1, options=fitting)) == 1
    tight = WorkloadOptions(1, output_tokens=100, max_context_tokens=1024 + 100 + 31)
    for form in ("context:1k", "mixed:light=1,context:256,1k=1"):
        with pytest.raises(ConfigError, match="at most 1023"):
            planned(form, 0, options=tight)


def test_a_mixture_follows_its_weights() -> None:
    num = 4000
    labels = Counter(one.label for one in planned("mixed:light=3,context:64:repeat=1", num))
    assert sum(labels.values()) == num
    assert abs(labels["light"] - 0.75 * num) < 4 * (num * 0.75 * 0.25) ** 0.5


def test_an_answer_has_at_least_a_token() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        WorkloadOptions(1, output_tokens=0)


def test_a_body_has_its_keys_in_one_order_and_only_what_was_given() -> None:
    request = WorkloadRequest((Message("user", 'Say "é".'),), 7, 0, 1, "light")
    assert (
        chat_body(request, "m")
        == (
            '{"model":"m","messages":[{"role":"user","content":"Say \\"é\\"."}],"max_tokens":7,'
            '"stream":true,"stream_options":{"include_usage":true}}'
        ).encode()
    )
    full = chat_body(
        request, "m", temperature=0.0, seed=3, ignore_eos=True, extra={"top_p": 0.5, "min_tokens": 2}
    )
    assert list(msgspec.json.decode(full))[5:] == ["temperature", "seed", "ignore_eos", "min_tokens", "top_p"]
    with pytest.raises(ConfigError, match="stream"):
        chat_body(request, "m", extra={"stream": False})


def test_a_traces_requests_share_the_blocks_they_shared() -> None:
    trace, count = read_trace(DATA / "mooncake.jsonl"), estimated()
    made = list(trace_conversations(trace, CodeCorpus(FILES, 1), WorkloadOptions(1)))
    prompts = [one.user_turns[0] for one in made]
    assert [one.max_output_tokens for one in made] == [20, 45, 3, 130, 9, 64, 500, 12]
    assert all(
        abs(count(prompt) - (row.input_tokens or 0)) <= len(row.hash_ids)
        for prompt, row in zip(prompts, trace.rows, strict=True)
    )
    shared_blocks = [count(common_prefix(prompts[0], other)) // 512 for other in prompts]
    # Row 0 is blocks 0, 1, 2; row 1 begins with 0, rows 2, 5 and 7 with 0 and 1, the others with neither.
    assert shared_blocks == [2, 1, 2, 0, 0, 2, 0, 2]


def test_a_trace_without_blocks_becomes_code_of_its_lengths() -> None:
    trace, count = read_trace(DATA / "burstgpt_1.csv"), estimated()
    made = list(trace_conversations(trace, CodeCorpus(FILES, 1), WorkloadOptions(1, output_tokens=50)))
    assert [count(one.user_turns[0]) for one in made] == [472, 1087, 417, 1360]
    assert [one.max_output_tokens for one in made] == [18, 230, 276, 50]
    assert [one.label for one in made] == ["ChatGPT", "ChatGPT", "GPT-4", "ChatGPT"]
    assert len({one.user_turns[0][:30] for one in made}) == 4


def test_lengths_that_a_log_does_not_tell_are_the_callers() -> None:
    trace = parse_trace(['192.0.2.1 - - [10/May/2024:14:00:10 +0000] "POST /v1/x HTTP/1.1" 200 80 "-" "-"'])
    [one] = trace_conversations(trace, CodeCorpus(FILES, 1), WorkloadOptions(1), unknown_input_tokens=90)
    assert estimated()(one.user_turns[0]) == 90
    assert (one.label, one.max_output_tokens) == ("/v1/x", 20)


def test_a_trace_that_does_not_fit_the_model_is_refused_with_its_line() -> None:
    trace = read_trace(DATA / "mooncake.jsonl")
    with pytest.raises(ConfigError, match=r"2 of the trace's 8 requests .* line 3\."):
        trace_conversations(trace, CodeCorpus(FILES, 1), WorkloadOptions(1, max_context_tokens=1500))
