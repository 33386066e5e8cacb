import json
import math
from pathlib import Path
from typing import Any

import pytest

from headway.core.plan import Rope
from headway.models.architecture_table import by_model_type
from headway.models.hf_config import HfConfig
from headway.models.hf_rope import read_ropes
from headway.models.rope import float32, longrope_scale, plain_frequencies, yarn_frequencies, yarn_scale

REFERENCES = json.loads((Path(__file__).parents[1] / "data" / "rope.json").read_text())
"""Written by scripts/make_rope_references.py with `transformers`, in float32."""

LAST_BIT = 2.0**-23
"""Of a float32, relative to its value, at most."""


@pytest.mark.parametrize("name", REFERENCES["cases"])
def test_frequencies_are_those_of_transformers_but_for_the_last_bit(name: str) -> None:
    case = REFERENCES["cases"][name]
    config = case["config"]
    row = by_model_type(config["model_type"])
    assert row is not None
    ropes, long_context = read_ropes(
        HfConfig(name, config, defaults=row.defaults),
        row,
        head_dim=config.get("head_dim", 64),
        max_context=config["max_position_embeddings"],
        local=True,
    )
    assert len(ropes) == len(case["ropes"])
    for rope, expected in zip(ropes, case["ropes"], strict=True):
        assert rope.scale == pytest.approx(expected["scale"], rel=1e-12)
        check(rope, expected["frequencies"])
    assert (long_context is None) == ("long" not in case)
    if long_context is not None:
        assert long_context.original_context == 4096
        assert long_context.ropes[0].scale == ropes[0].scale
        check(long_context.ropes[0], case["long"])


def check(rope: Rope, expected: list[float]) -> None:
    assert rope.dim == 2 * len(rope.frequencies)
    assert not rope.interleaved
    assert all(float32(frequency) == frequency for frequency in rope.frequencies)
    assert rope.frequencies == pytest.approx(expected, rel=LAST_BIT, abs=0)


def test_every_way_of_scaling_has_a_reference() -> None:
    def kinds(value: Any) -> set[str]:
        if not isinstance(value, dict):
            return set()
        own = {value[key] for key in ("rope_type", "type") if key in value}
        return own.union(*map(kinds, value.values()))

    found = set().union(*(kinds(case["config"]) for case in REFERENCES["cases"].values()))
    assert found == {"default", "dynamic", "linear", "llama3", "longrope", "su", "yarn"}


def test_float32_is_the_nearest() -> None:
    assert float32(1 / 3) == 11184811 / 2**25
    assert float32(2**24 + 1) == 2**24
    with pytest.raises(OverflowError):
        float32(1e39)


def test_frequencies_of_eight_dimensions() -> None:
    assert plain_frequencies(8, 10_000.0) == pytest.approx((1.0, 0.1, 0.01, 0.001), rel=LAST_BIT)


def test_yarn_keeps_fast_dimensions_and_divides_slow_ones() -> None:
    plain = plain_frequencies(64, 10_000.0)
    scaled = yarn_frequencies(64, 10_000.0, factor=8.0, original_context=2048)
    ratios = [whole / part for whole, part in zip(plain, scaled, strict=True)]
    assert ratios[:5] == pytest.approx([1.0] * 5, rel=LAST_BIT)  # more than 32 turns in 2048 positions
    assert ratios[-10:] == pytest.approx([8.0] * 10, rel=LAST_BIT)  # less than one
    assert ratios == sorted(ratios)


def test_scales_are_one_without_scaling() -> None:
    assert yarn_scale(1.0) == yarn_scale(0.5) == longrope_scale(1.0, 4096) == longrope_scale(0.5, 4096) == 1.0
    assert yarn_scale(math.e) == pytest.approx(1.1)
    assert longrope_scale(4096.0, 4096) == pytest.approx(math.sqrt(2))
