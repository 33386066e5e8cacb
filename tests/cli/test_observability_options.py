"""What `serve` is told to observe, and what it refuses to be told."""

import pytest

from headway.cli.main import build_parser, main
from headway.cli.observability_options import obs_config
from headway.obs.config import ObsConfig, TokenConfig, TraceConfig


def config(*arguments: str) -> ObsConfig:
    return obs_config(build_parser().parse_args(["serve", "m", *arguments]))


def test_without_options_the_defaults_hold() -> None:
    assert config() == ObsConfig()
    assert dict(config().tokens.alarm_ms) == {"admin": 50, "user": 200, "service": 200}


def test_every_option_arrives() -> None:
    told = config(
        *(
            "--watch-token",
            "a",
            "--watch-token",
            "b",
            "--top-tokens",
            "0",
            "--alarm-ms",
            "user=150,admin=12.5",
        ),
        *("--otlp", "http://127.0.0.1:4318", "--trace-ratio", "1"),
    )
    assert told == ObsConfig(
        tokens=TokenConfig(
            watched=frozenset({"a", "b"}), num_top=0, alarm_ms={"admin": 12.5, "user": 150, "service": 200}
        ),
        traces=TraceConfig(endpoint="http://127.0.0.1:4318", sample_ratio=1),
    )


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--watch-token", "_other"),
        ("--watch-token", "a b"),
        ("--watch-token", ""),
        ("--top-tokens", "-1"),
        ("--alarm-ms", "50"),
        ("--alarm-ms", "root=50"),
        ("--alarm-ms", "admin=0"),
        ("--alarm-ms", "admin=nan"),
        ("--alarm-ms", "admin=1,admin=2"),
        ("--otlp", "127.0.0.1:4318"),
        ("--otlp", "http://"),
        ("--otlp", "http://h:99999"),
        ("--otlp", "grpc://h:4317"),
        ("--trace-ratio", "1.1"),
        ("--trace-ratio", "-0.1"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_its_option(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "m", f"{option}={value}"])
    assert ended.value.code == 2
    assert option in capsys.readouterr().err
