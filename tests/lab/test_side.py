"""How a side of a comparison is written."""

import pytest

from headway.core.errors import ConfigError
from headway.lab.endpoint import parse_endpoint
from headway.lab.side import Side, parse_side


def test_a_side_is_an_endpoint_and_what_it_differs_in() -> None:
    assert parse_side("localhost:8000") == Side(endpoint=parse_endpoint("http://localhost:8000/v1"))
    found = parse_side(
        "https://x.org/api , model = owner/name:q8=1 ,api-key-env=KEY".replace(" ", ""), {"KEY": "secret"}
    )
    assert found == Side(endpoint=parse_endpoint("https://x.org/api", "secret"), model="owner/name:q8=1")
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("http://x,m", "not with 'm'"),
        ("http://x,model=", "not with 'model='"),
        ("http://x,", "not with ''"),
        ("http://x,seed=1", "not with 'seed=1'"),
        ("http://x,model=a,model=b", "says model twice"),
        ("http://x,api-key-env=NO", "NO is not set"),
        ("http://x,api-key-env=EMPTY", "EMPTY is not set"),
        ("ftp://x,model=a", "not the URL of an endpoint"),
    ],
)
def test_what_is_no_side_is_told(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_side(text, {"EMPTY": ""})
