from random import Random

import pytest

from headway.engine.step_time import FIRST_CHUNK, Load, StepTime


def true_ns(load: Load) -> float:
    return 4e6 + 0.55e6 * load.prompt + 0.45e6 * load.decode + 300 * load.context + 60 * load.attended


def random_load(random: Random, most: int) -> Load:
    num_prompt = random.choice([0, min(most, random.randint(1, 96))])
    num_decode = random.randint(0 if num_prompt else 1, 12)
    return Load(
        num_prompt, num_decode, num_decode * random.randint(100, 3000), num_prompt * random.randint(8, 3000)
    )


def taught(seed: int, num_steps: int, noise: float = 0.03) -> StepTime:
    random, learnt = Random(seed), StepTime()
    for _ in range(num_steps):
        load = random_load(random, learnt.max_chunk)
        learnt.observe(load, int(true_ns(load) * random.gauss(1, noise)))
    return learnt


def test_nothing_is_known_before_a_step_was_timed() -> None:
    unknown = StepTime()
    assert not unknown.is_known
    assert unknown.of(Load(64, 1, 100, 2000)) == 0
    unknown.observe(Load(64, 1, 100, 2000), 0)
    assert not unknown.is_known, "a runner without a clock teaches nothing"


@pytest.mark.parametrize("seed", range(5))
def test_it_predicts_steps_it_has_not_seen(seed: int) -> None:
    learnt, random = taught(seed, 300), Random(100 + seed)
    misses = [
        abs(learnt.of(load) / true_ns(load) - 1) for load in (random_load(random, 96) for _ in range(100))
    ]
    assert sum(misses) / len(misses) < 0.05
    assert learnt.per_prompt_token_ns == pytest.approx(0.55e6, rel=0.1)
    assert learnt.per_attended_ns == pytest.approx(60, rel=0.25)


def test_the_error_says_what_predictions_miss() -> None:
    assert taught(1, 300, noise=0.0).error < 0.01
    assert 0.05 < taught(1, 300, noise=0.15).error < 0.25


def test_an_hour_of_streams_unlearns_nothing_of_prompts() -> None:
    learnt, random = taught(3, 300), Random(4)
    before = learnt.per_prompt_token_ns
    for _ in range(20_000):
        load = Load(0, 4, random.randint(400, 8000), 0)
        learnt.observe(load, int(true_ns(load) * random.gauss(1, 0.03)))
    assert learnt.per_prompt_token_ns == pytest.approx(before, rel=0.05)
    prompt = Load(64, 4, 4000, 64 * 1000)
    assert learnt.of(prompt) == pytest.approx(true_ns(prompt), rel=0.1)


def test_it_follows_a_machine_that_becomes_half_as_fast() -> None:
    learnt, random = taught(5, 300), Random(6)
    for _ in range(200):
        load = random_load(random, 96)
        learnt.observe(load, int(2 * true_ns(load)))
    load = Load(64, 4, 4000, 64 * 1000)
    assert learnt.of(load) == pytest.approx(2 * true_ns(load), rel=0.1)


def test_one_step_that_took_a_second_is_not_believed() -> None:
    learnt = taught(7, 300)
    load = Load(64, 4, 4000, 64 * 1000)
    before = learnt.of(load)
    learnt.observe(load, 10**9)
    assert learnt.of(load) < 1.2 * before


def test_chunks_grow_no_faster_than_what_was_timed() -> None:
    learnt = StepTime()
    assert learnt.max_chunk == FIRST_CHUNK
    learnt.observe(Load(20, 0, 0, 200), 15_000_000)
    assert learnt.max_chunk == 40
    learnt.observe(Load(0, 4, 400, 0), 6_000_000)
    assert learnt.max_chunk == 40
