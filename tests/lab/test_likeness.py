"""Runs that were not asked alike, or not measured well, are not compared without a word."""

from dataclasses import replace

from headway.lab.likeness import Traits, cached_share, tokens_by, unlike
from support.scripted_stream import DONE, play, tokens, usage

A = Traits(
    name="A",
    asked={"workload": "light", "seed_free": 1},
    tokens_by="usage",
    tokens_per_answer=100,
    cached_share=0.5,
    num_failed=0,
    num_offered=20,
)
B = replace(A, name="B")


def test_like_runs_are_compared_without_a_word() -> None:
    assert unlike(A, B) == ()
    assert unlike(A, replace(B, tokens_per_answer=91, cached_share=0.59)) == ()
    assert unlike(A, replace(B, tokens_by=None, tokens_per_answer=None, cached_share=None)) == ()


def test_every_difference_is_named() -> None:
    found = unlike(
        A,
        Traits(
            name="B",
            asked={"workload": "medium", "seed_free": 1},
            tokens_by="chunks",
            tokens_per_answer=50,
            cached_share=0,
            num_failed=3,
            num_offered=20,
            believable=False,
            interrupted=True,
            num_others=1234,
        ),
    )
    assert found == (
        "A and B were not asked alike: workload (light, medium).",
        "Do not believe B: its client sent too late.",
        "B was interrupted.",
        "The server answered 1,234 requests of others during B.",
        "Latencies are those of requests that succeeded; failed: 0 of 20 in A and 3 of 20 in B.",
        "Tokens were counted by usage in A and by chunks in B.",
        "Answers had 100 tokens on average in A and 50 in B.",
        "Of prompt tokens 50% came from the server's cache in A and 0% in B.",
    )


def test_traits_are_those_of_the_records() -> None:
    counted = play(*tokens(1, 1, 3), (3, usage(3, prompt_tokens=100, cached_tokens=75)), (3, DONE))
    uncounted = play(*tokens(1, 1, 3), (3, DONE))
    assert cached_share([counted, uncounted, play(status=429)]) == 0.75
    assert cached_share([uncounted]) is None
    assert [tokens_by(run) for run in ([counted], [uncounted], [counted, uncounted], [])] == [
        "usage",
        "chunks",
        "mixed",
        None,
    ]
