"""What plans of every architecture say, computed in double precision, against `transformers` in float32.

Six digits agree, so that a wrong constant shows that bf16 or int8 would hide. Needs no native core.
"""

from pathlib import Path

import numpy as np
import pytest

from headway.models.architectures import open_plan
from support.checkpoint_case import Case
from support.checkpoint_cases import CASES
from support.checkpoints import by_source, reference, relative_error, write_checkpoint
from support.plan_forward import PlanForward

NUM_TOKENS = 257  # beyond every window and original context but one, whose scaling depends on no position
MAX_RELATIVE_ERROR = 2e-5
"""Float32 leaves transformers up to 6e-6 off."""


@by_source
def test_plans_say_what_transformers_computes(case: Case, source: str, tmp_path: Path) -> None:
    check(case, write_checkpoint(tmp_path, case, source))


@pytest.mark.parametrize(
    "case", [case for case in CASES if "folder" in case.sources], ids=lambda case: case.name
)
def test_configurations_that_transformers_writes_mean_the_same(case: Case, tmp_path: Path) -> None:
    saved = reference(case).saved_config
    assert saved is not None
    assert saved != case.config
    check(case, write_checkpoint(tmp_path, case, "folder", config=saved))


def check(case: Case, path: Path) -> None:
    expected = reference(case)
    positions = [position for position in expected.positions if position < NUM_TOKENS]
    forward = PlanForward(open_plan(path), max_context=case.max_context)
    logits = forward.logits(expected.tokens[:NUM_TOKENS])[positions].astype(np.float32)
    assert relative_error(logits, expected.logits[: len(positions)]) <= MAX_RELATIVE_ERROR
