import msgspec
import pytest

from headway.core.errors import InvalidRequest
from headway.core.request import Request
from headway.wire.service_headers import ServiceTerms, parse_service_headers

MS = 1_000_000
ALL_VISIBLE = "".join(map(chr, range(0x21, 0x7F)))


def parse(*headers: tuple[str, str]) -> ServiceTerms:
    return parse_service_headers([(name.encode(), value.encode("latin-1")) for name, value in headers])


def test_a_request_that_says_nothing_asks_for_what_an_engine_request_has_by_itself() -> None:
    terms = parse(("content-type", "application/json"), ("x-headway-unknown", "7"))
    assert terms == ServiceTerms()
    defaults = dict(
        zip(
            Request.__struct_fields__[-len(Request.__struct_defaults__) :],
            Request.__struct_defaults__,
            strict=True,
        )
    )
    assert msgspec.structs.asdict(terms).items() <= defaults.items()


def test_every_header_is_read() -> None:
    terms = parse(
        ("x-headway-class", "high"),
        ("x-headway-tenant", "team/a"),
        ("x-headway-ttft-ms", "480"),
        ("x-headway-itl-ms", "62.5"),
        ("x-headway-session", "4f:2"),
    )
    assert terms == ServiceTerms(
        service_class="high",
        tenant="team/a",
        ttft_deadline_ns=480 * MS,
        itl_target_ns=62_500_000,
        session="4f:2",
    )


@pytest.mark.parametrize(
    ("name", "field", "text", "value"),
    [
        ("class", "service_class", "normal", "normal"),
        ("class", "service_class", " low\t", "low"),
        ("tenant", "tenant", ALL_VISIBLE, ALL_VISIBLE),
        ("tenant", "tenant", "t" * 128, "t" * 128),
        ("session", "session", "s", "s"),
        ("ttft-ms", "ttft_deadline_ns", "0", 0),
        ("ttft-ms", "ttft_deadline_ns", "0.000001", 1),
        ("ttft-ms", "ttft_deadline_ns", "1.1", 1_100_000),
        ("ttft-ms", "ttft_deadline_ns", "0003600000.000", 3_600_000 * MS),
        ("itl-ms", "itl_target_ns", "60000", 60_000 * MS),
        ("itl-ms", "itl_target_ns", "0.0000001", 1),
    ],
)
def test_the_edges_of_what_is_allowed(name: str, field: str, text: str, value: object) -> None:
    assert getattr(parse((f"x-headway-{name}", text)), field) == value


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        *(
            ("class", text, "high, normal or low")
            for text in ("", "High", "urgent", "0", "high,low", "high low")
        ),
        *(
            (name, text, "1 to 128 visible ASCII characters")
            for name in ("tenant", "session")
            for text in ("", " ", "a b", "a\tb", "a\n", "caf\u00e9", "\x7f", "t" * 129)
        ),
        *(
            ("ttft-ms", text, "a number of milliseconds from 0 to 3600000")
            for text in (
                "",
                "-1",
                "+1",
                "1e3",
                "1.",
                ".5",
                "1,000",
                "0x10",
                "nan",
                "inf",
                "1_0",
                "\u00b2",
                "480 ms",
            )
        ),
        *(("ttft-ms", text, "from 0 to 3600000") for text in ("3600001", "3600000.0000000001", "9" * 5000)),
        *(
            ("itl-ms", text, "a number of milliseconds over 0 and up to 60000")
            for text in ("", "0", "0.000", "60000.1", "-5", "true")
        ),
    ],
)
def test_anything_else_is_refused_by_name_with_what_is_allowed(name: str, text: str, allowed: str) -> None:
    with pytest.raises(InvalidRequest) as info:
        parse((f"x-headway-{name}", text))
    assert info.value.param == f"x-headway-{name}"
    assert allowed in info.value.message
    assert len(info.value.message) < 300


@pytest.mark.parametrize("name", ["class", "tenant", "ttft-ms", "itl-ms", "session"])
def test_a_header_that_comes_twice_is_refused_even_if_both_agree(name: str) -> None:
    header = (f"x-headway-{name}", "high" if name == "class" else "1")
    assert parse(header) != ServiceTerms()
    with pytest.raises(InvalidRequest, match="more than once") as info:
        parse(header, header)
    assert info.value.param == header[0]
