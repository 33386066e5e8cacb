"""A secret is given back by one method and printed by nothing."""

import copy
import json
import pickle
from dataclasses import dataclass

import msgspec
import pytest

from headway.core.secret import Secret

SECRET = Secret("hw_very-secret")


@dataclass(frozen=True, slots=True)
class Holder:
    secret: Secret


def test_it_is_given_back_when_asked_for() -> None:
    assert SECRET.reveal() == "hw_very-secret"


@pytest.mark.parametrize(
    "told", [repr(SECRET), str(SECRET), f"{SECRET}", f"{[SECRET]!r}", repr(Holder(SECRET)), f"{SECRET!a}"]
)
def test_nothing_that_prints_it_tells_it(told: str) -> None:
    assert "very" not in told


def test_nothing_writes_it() -> None:
    with pytest.raises(TypeError):
        json.dumps(SECRET)
    with pytest.raises(TypeError):
        pickle.dumps(SECRET)
    with pytest.raises(TypeError):
        copy.copy(SECRET)
    with pytest.raises(TypeError):
        msgspec.json.encode({"token": SECRET})


def test_two_are_equal_if_their_texts_are() -> None:
    assert Secret("hw_very-secret") == SECRET
    assert Secret("hw_very-secre") != SECRET
    assert SECRET != "hw_very-secret"
    with pytest.raises(TypeError):
        hash(SECRET)
