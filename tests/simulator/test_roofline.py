"""What a device's published figures make of a step, against figures worked out by hand."""

import pytest

from headway.core.errors import ConfigError
from headway.runner.shapes import find_shape
from headway.simulator.devices import DEVICES, find_device
from headway.simulator.roofline import RooflineCost
from headway.simulator.step_load import StepLoad

LLAMA = find_shape("llama-3-8b")
LAYERS = 32 * (4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14_336)
TABLE = 128_256 * 4096


def cost(device: str = "a100-80g", weights: str = "bf16") -> RooflineCost:
    return RooflineCost(
        device=find_device(device)[1],
        shape=LLAMA,
        weights=weights,
        compute_efficiency=0.5,
        read_efficiency=0.8,
        launch_s=0.001,
    )


def test_one_stream_waits_for_the_weights_and_its_cache() -> None:
    kv_token = 2 * 32 * 8 * 128 * 2
    expected = (2 * (LAYERS + TABLE) + kv_token * 1001) / (2039e9 * 0.8) + 0.001
    assert cost().seconds(StepLoad(1, 1, 1, context=1000)) == pytest.approx(expected)


def test_a_long_prompt_waits_for_the_products() -> None:
    pairs = 4096 * 4097 // 2
    operations = 2 * (LAYERS * 4096 + TABLE) + 4 * 4096 * 32 * pairs
    expected = operations / (312e12 * 0.5) + 0.001
    assert cost().seconds(StepLoad(4096, 1, 1, pairs=pairs, chunks=1)) == pytest.approx(expected)


def test_int8_reads_about_half_and_computes_twice_as_much() -> None:
    one, long = StepLoad(1, 1, 1, context=1), StepLoad(4096, 0, 1)
    assert 0.5 < cost(weights="int8").seconds(one) / cost().seconds(one) < 0.6
    assert 0.5 < cost(weights="int8").seconds(long) / cost().seconds(long) < 0.52


def test_of_experts_those_are_read_that_some_row_chose() -> None:
    shape = find_shape("qwen3-30b-a3b")
    moe = RooflineCost(device=DEVICES["h100-sxm"], shape=shape, launch_s=0.0)
    one, many = (moe.seconds(StepLoad(rows, rows, rows)) for rows in (1, 64))
    expert = 2 * 3 * 2048 * 768 * 48
    assert (many - one) * 3350e9 * 0.8 == pytest.approx(
        expert * (128 * (1 - (1 - 8 / 128) ** 64) - 8), rel=0.01
    )


def test_what_weights_leave_of_the_memory_is_the_cache() -> None:
    found = cost("a10").runner_info()
    assert found.num_blocks == int((24e9 * 0.9 - 2 * (LAYERS + 2 * TABLE)) // (2 * 32 * 8 * 128 * 2 * 16))
    assert found.max_context == 8192
    assert cost("a10").runner_info(max_context=4096).max_context == 4096
    with pytest.raises(ConfigError, match="no memory for the KV cache"):
        RooflineCost(device=DEVICES["a10"], shape=find_shape("qwen2.5-coder-14b")).runner_info()


def test_names_of_devices() -> None:
    assert find_device("H100")[0] == "h100-sxm"
    with pytest.raises(ConfigError, match=r"no device 'b200'; there are a10, l4"):
        find_device("b200")


@pytest.mark.parametrize("factor", [0.0, 1e-300, 1.1])
def test_efficiencies_are_shares(factor: float) -> None:
    with pytest.raises(ConfigError, match=r"at least 0\.001 and at most 1"):
        RooflineCost(device=DEVICES["a10"], shape=LLAMA, compute_efficiency=factor)
