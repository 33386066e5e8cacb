import json

import pytest

from headway.core.errors import InvalidRequest
from headway.wire.completion_request import CompletionCall, parse_completion


def parse(**fields: object) -> CompletionCall:
    return parse_completion(json.dumps({"prompt": "hi", **fields}).encode())


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("hi", ("hi",)),
        ("", ("",)),
        (["a", "b"], ("a", "b")),
        ([1, 2, 3], ((1, 2, 3),)),
        ([[1], [2, 3]], ((1,), (2, 3))),
    ],
)
def test_every_form_of_prompt(prompt: object, prompts: tuple[object, ...]) -> None:
    assert parse(prompt=prompt).prompts == prompts


@pytest.mark.parametrize(
    "prompt",
    [[], [[]], [[1], []], [1, "a"], ["a", 1], [[1], 2], [True], [1.5], [None], {"a": 1}, 5, [[["a"]]]],
)
def test_other_forms_are_refused(prompt: object) -> None:
    with pytest.raises(InvalidRequest) as info:
        parse(prompt=prompt)
    assert info.value.param == "prompt"


def test_a_missing_prompt_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="prompt"):
        parse_completion(b"{}")


@pytest.mark.parametrize(
    "field",
    [{"best_of": 1}, {"echo": False}, {"suffix": ""}, {"suffix": None}, {"user": "u"}, {"logprobs": None}],
)
def test_fields_that_ask_for_what_happens_anyway_are_accepted(field: dict[str, object]) -> None:
    assert parse(**field) == parse()


@pytest.mark.parametrize(
    ("field", "param"),
    [
        ({"best_of": 2}, "best_of"),
        ({"best_of": 2, "n": 1}, "best_of"),
        ({"suffix": "x", "prompt": [1, 2]}, "suffix"),
        ({"echo": True, "logprobs": 1}, "echo"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"messages": []}, "messages"),
        ({"max_completion_tokens": 5}, "max_completion_tokens"),
        ({"tools": [{}]}, "tools"),
        ({"prompt": ["a"] * 65, "n": 2}, "prompt"),
    ],
    ids=str,
)
def test_what_would_change_the_output_is_refused_by_name(field: dict[str, object], param: str) -> None:
    with pytest.raises(InvalidRequest) as info:
        parse(**field)
    assert info.value.param == param


def test_best_of_equal_to_n_and_legacy_logprobs() -> None:
    call = parse(best_of=2, n=2, logprobs=0, echo=None)
    assert call.options.n == 2
    assert call.options.sampling.num_logprobs == 0
