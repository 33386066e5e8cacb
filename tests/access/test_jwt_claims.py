"""What the claims of a JWT mean: when it counts, and for whom."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.access.config import ClaimsConfig, DefaultsConfig, JwtConfig
from headway.access.jwt_claims import NotValid, caller_of, public_id_of, valid_until_s
from headway.core.caller import Caller, CallerLimits
from headway.core.errors import Forbidden
from support.jwt_issuer import CLAIMS, ISSUER, NOW_S
from support.memory_tokens import SERVER_KEY

CONFIG = JwtConfig(issuer=ISSUER, audience="headway", jwks_file="keys.json", leeway_s=10)
MAPPED = JwtConfig(
    issuer=ISSUER,
    audience="headway",
    jwks_file="keys.json",
    claims=ClaimsConfig(
        user="email",
        tenant=("https://example.org/org", "id"),
        class_="tier",
        kind="role",
        requests_per_s="rps",
        tokens_per_min="tpm",
        max_concurrent="at_once",
    ),
    defaults=DefaultsConfig(tenant="rest", class_="low", kind="service", requests_per_s=3, max_concurrent=2),
    classes={"gold": "high"},
    kinds={"root": "admin"},
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


def until(config: JwtConfig = CONFIG, **claims: Any) -> float | None:
    merged = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    try:
        return valid_until_s(merged, config, NOW_S)
    except NotValid:
        return None


def test_a_jwt_counts_until_its_expiry_and_the_leeway() -> None:
    assert until() == NOW_S + 70
    assert until(exp=NOW_S - 9) == NOW_S + 1
    assert until(exp=NOW_S + 0.5) == NOW_S + 10.5


def test_of_several_audiences_one_must_be_ours() -> None:
    assert until(aud=["chat", "headway"]) is not None
    both = JwtConfig(issuer=ISSUER, audience=("headway", "chat"), jwks_file="keys.json")
    assert until(both, aud="chat") is not None


def test_one_that_begins_within_the_leeway_counts() -> None:
    assert until(nbf=NOW_S + 10) is not None
    assert until(iat=NOW_S + 1_000) is not None  # says nothing of when it counts


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": None},
        {"exp": NOW_S - 10},
        {"exp": str(NOW_S + 60)},
        {"exp": True},
        {"exp": float("inf")},
        {"exp": float("nan")},
        {"exp": 10**400},
        {"exp": -1},
        {"exp": [NOW_S + 60]},
        {"nbf": NOW_S + 11},
        {"nbf": "now"},
        {"iss": None},
        {"iss": "https://id.example/"},
        {"iss": [ISSUER]},
        {"aud": None},
        {"aud": "head"},
        {"aud": []},
        {"aud": [["headway"]]},
        {"aud": {"headway": True}},
        {"sub": None},
        {"sub": ""},
        {"sub": 5},
        {"sub": "s" * 1_001},
    ],
)
def test_one_that_is_not_ours_or_not_of_now_does_not_count(claims: dict[str, Any]) -> None:
    assert until(**claims) is None


def test_without_settings_the_subject_is_the_user() -> None:
    caller = caller_of(CLAIMS, CONFIG, SERVER_KEY)
    assert caller == Caller(token_id=public_id_of(SERVER_KEY, ISSUER, "ada|1"), user="ada|1")


def test_claims_say_what_they_are_set_to() -> None:
    claims = {
        "email": "ada@example.org",
        "https://example.org/org": {"id": "acme"},
        "tier": "gold",
        "role": "root",
        "rps": 0.5,
        "tpm": 9_000,
        "at_once": 7,
    }
    assert caller_of(CLAIMS | claims, MAPPED, SERVER_KEY) == Caller(
        token_id=public_id_of(SERVER_KEY, ISSUER, "ada|1"),
        tenant="acme",
        user="ada@example.org",
        service_class="high",
        kind="admin",
        limits=CallerLimits(requests_per_s=0.5, tokens_per_min=9_000, max_concurrent=7),
    )


def test_what_no_claim_says_is_the_default() -> None:
    caller = caller_of(CLAIMS | {"email": "ada", "tier": None}, MAPPED, SERVER_KEY)
    assert (caller.tenant, caller.service_class, caller.kind) == ("rest", "low", "service")
    assert caller.limits == CallerLimits(requests_per_s=3, max_concurrent=2)


def test_the_words_of_our_own_need_no_setting() -> None:
    caller = caller_of(CLAIMS | {"email": "ada", "tier": "normal", "role": "admin"}, MAPPED, SERVER_KEY)
    assert (caller.service_class, caller.kind) == ("normal", "admin")


@pytest.mark.parametrize(
    ("claims", "named"),
    [
        ({"email": None}, "`email`"),
        ({"email": ""}, "`email`"),
        ({"email": "ada b"}, "`email`"),
        ({"email": "u" * 129}, "`email`"),
        ({"email": "ünal"}, "`email`"),
        ({"email": "a\nlevel=ERROR"}, "`email`"),
        ({"email": 5}, "`email`"),
        ({"https://example.org/org": {"id": "a b"}}, '["https://example.org/org","id"]'),
        ({"tier": "platinum"}, "`tier`"),
        ({"tier": ["gold"]}, "`tier`"),
        ({"role": "Admin"}, "`role`"),
        ({"rps": "5"}, "`rps`"),
        ({"rps": True}, "`rps`"),
        ({"rps": 0}, "`requests_per_s`"),
        ({"rps": float("nan")}, "`requests_per_s`"),
        ({"tpm": 1.5}, "`tpm`"),
        ({"tpm": 0}, "`tokens_per_min`"),
        ({"at_once": -1}, "`max_concurrent`"),
    ],
)
def test_a_right_jwt_whose_claims_nobody_can_be_is_refused_with_the_claims_name(
    claims: dict[str, Any], named: str
) -> None:
    with pytest.raises(Forbidden) as caught:
        caller_of(CLAIMS | {"email": "ada"} | claims, MAPPED, SERVER_KEY)
    assert (caught.value.status, caught.value.code) == (403, "forbidden")
    assert named in caught.value.message


@given(st.dictionaries(st.sampled_from(["iss", "aud", "sub", "exp", "nbf"]), JSON))
def test_any_claims_are_judged_without_failing(claims: dict[str, object]) -> None:
    with suppress(NotValid):
        valid_until_s({**CLAIMS, **claims}, CONFIG, NOW_S)


@given(st.dictionaries(st.sampled_from(["email", "tier", "role", "rps", "tpm", "at_once"]), JSON))
def test_any_claims_make_a_caller_or_a_403(claims: dict[str, object]) -> None:
    try:
        caller = caller_of({**CLAIMS, **claims}, MAPPED, SERVER_KEY)
    except Forbidden:
        return
    assert caller.user == claims["email"]
    assert caller.user.isprintable()


def test_a_public_id_is_always_the_same_and_of_one_subject() -> None:
    told = public_id_of(SERVER_KEY, ISSUER, "ada|1")
    assert len(told) == 16
    assert told.startswith("jwt_")
    assert public_id_of(SERVER_KEY, ISSUER, "ada|1") == told
    others = [
        public_id_of(SERVER_KEY, ISSUER, "ada|2"),
        public_id_of(SERVER_KEY, ISSUER + "\0ada", "|1"),
        public_id_of(bytes(32), ISSUER, "ada|1"),
    ]
    assert told not in others
