"""Options that `headway simulate` and `headway simulate pareto` share, and what they simulate: model, machine, replicas."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from headway.cli.options import (
    MODEL_HELP,
    above_zero,
    add_scheduler_options,
    finite,
    positive,
    scheduler_config,
)
from headway.core.config import KvFormat
from headway.core.errors import ConfigError
from headway.models.sources import SHAPE_PREFIX

if TYPE_CHECKING:
    from headway.core.plan import ModelShape
    from headway.lab.token_estimate import TokenCounter
    from headway.simulator.calibration import Calibration
    from headway.simulator.loader import Service
    from headway.simulator.prompts import PromptMaker

WEIGHTS = ("bf16", "int8", "int4")
_OF_A_DEVICE = ("weights", "kv", "max_context", "compute_efficiency", "read_efficiency", "launch_ms")
MAX_LAUNCH_MS = 60_000
"""Nobody waits so long for a token; and what a run of such steps takes has to fit 63 bits of nanoseconds."""


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add which model it is."""
    parser.add_argument(
        "model", metavar="MODEL", help=f"shape:NAME (prompts' tokens are then estimated), {MODEL_HELP}"
    )


def add_device_options(parser: argparse.ArgumentParser) -> None:
    """Add in what formats a model is on a named device, and what of the device's figures it reaches."""
    group = parser.add_argument_group("device", "of a roofline, not of a calibration")
    group.add_argument("--weights", choices=WEIGHTS, help="format of the weights (default: bf16)")
    group.add_argument(
        "--kv",
        choices=get_args(KvFormat),
        help="format of the KV cache (default: bf16)",
    )
    group.add_argument(
        "--max-context",
        type=positive,
        metavar="TOKENS",
        help="longest prompt plus answer (default: what the model was trained for)",
    )
    group.add_argument(
        "--compute-efficiency",
        type=above_zero,
        metavar="SHARE",
        help="of the published operations a second (default: 0.6)",
    )
    group.add_argument(
        "--read-efficiency",
        type=above_zero,
        metavar="SHARE",
        help="of the published memory bandwidth (default: 0.8)",
    )
    group.add_argument(
        "--launch-ms",
        type=finite,
        metavar="MS",
        help="what a step takes however small it is (default: 2, of a CPU 0.2)",
    )


def add_fleet_options(parser: argparse.ArgumentParser) -> None:
    """Add how many replicas there are, how requests find them, and how each schedules."""
    group = parser.add_argument_group("replicas")
    group.add_argument(
        "--replicas",
        type=positive,
        metavar="N",
        default=1,
        help="engines, each on a machine of its own (default: %(default)s)",
    )
    group.add_argument(
        "--route",
        choices=("least-loaded", "round-robin"),
        default="least-loaded",
        help="where a conversation's first request goes; later ones follow it (default: %(default)s)",
    )
    add_scheduler_options(parser)
    # What a simulated answer says is made up, so nothing could be guessed of it.
    parser.set_defaults(max_draft_tokens=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedModel:
    """A model to simulate. `count_tokens` None: it has no tokenizer here, and tokens are estimated."""

    name: str
    shape: "ModelShape | None"
    prompts: "PromptMaker"
    count_tokens: "TokenCounter | None"


def open_model(name: str, calibration: "Calibration | None" = None) -> SimulatedModel:
    """Return a model by its name; of a shape that has none here the calibration knows the vocabulary.

    Raises ConfigError and ModelFileError as opening a model does.
    """
    from headway.models.architectures import open_plan
    from headway.models.fetch import resolve_model
    from headway.models.sources import known_sha256, served_name
    from headway.models.text_side import open_text
    from headway.runner.shapes import find_shape
    from headway.simulator.prompts import EstimatedPrompts, TokenizedPrompts

    if name.startswith(SHAPE_PREFIX):
        shape = find_shape(name.removeprefix(SHAPE_PREFIX))
        vocab_size = shape.vocab_size if calibration is None else calibration.runner.vocab_size
        return SimulatedModel(
            name=name.removeprefix(SHAPE_PREFIX),
            shape=shape,
            prompts=EstimatedPrompts(vocab_size),
            count_tokens=None,
        )
    path = Path(resolve_model(name))
    text = open_text(path)
    return SimulatedModel(
        name=served_name(name),
        shape=open_plan(path, known_sha256(path)).shape,
        prompts=TokenizedPrompts(text),
        count_tokens=lambda words: len(text.tokenizer.encode(words, add_bos=False)),
    )


def device_service(args: argparse.Namespace, model: SimulatedModel, device_name: str) -> "Service":
    """Return the service on a named device; raises ConfigError where the model does not fit it."""
    from headway.simulator.devices import find_device
    from headway.simulator.loader import Service
    from headway.simulator.roofline import COMPUTE_EFFICIENCY, READ_EFFICIENCY, RooflineCost

    whole, device = find_device(device_name)
    assert model.shape is not None
    if args.launch_ms is not None and not 0 <= args.launch_ms <= MAX_LAUNCH_MS:
        raise ConfigError(f"--launch-ms is a step's least time: from 0 to {MAX_LAUNCH_MS}.")
    cost = RooflineCost(
        device=device,
        shape=model.shape,
        weights=args.weights or "bf16",
        kv=args.kv or "bf16",
        compute_efficiency=args.compute_efficiency or COMPUTE_EFFICIENCY,
        read_efficiency=args.read_efficiency or READ_EFFICIENCY,
        launch_s=None if args.launch_ms is None else args.launch_ms / 1e3,
    )
    return Service(
        name=model.name,
        runner=cost.runner_info(max_context=args.max_context),
        step=cost,
        scheduler=scheduler_config(args),
        num_replicas=getattr(args, "replicas", 1),
        route=getattr(args, "route", "least-loaded"),
        machine=f"{whole} by its roofline ({cost.described()})",
    )


def calibrated_service(args: argparse.Namespace, model: SimulatedModel, found: "Calibration") -> "Service":
    """Return the service on the machine that was calibrated; raises ConfigError for what is asked of devices alone."""
    from headway.simulator.calibration import CalibratedCost
    from headway.simulator.loader import Service

    for name in _OF_A_DEVICE:
        if getattr(args, name) is not None:
            raise ConfigError(
                f"--{name.replace('_', '-')} is of a device: a calibration is of the machine as it was measured."
            )
    return Service(
        name=model.name,
        runner=found.info(),
        step=CalibratedCost(found),
        serving=found.serving,
        scheduler=scheduler_config(args),
        num_replicas=args.replicas,
        route=args.route,
        machine=f"a machine calibrated for {found.model} (steps within {found.fit.held_out_median:.1%}, median of "
        f"{found.fit.num_held_out} not fitted)",
    )
