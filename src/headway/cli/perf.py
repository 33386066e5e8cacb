"""`headway perf`: how fast a model, or the shape of one, is on this machine, and how fast the machine could be."""

import argparse
import json
from typing import TYPE_CHECKING

from headway.cli.options import MODEL_HELP, add_format_options, engine_config, positive

if TYPE_CHECKING:
    from headway.cli.main import Subparsers


def batches(text: str) -> tuple[int, ...]:
    """Parse numbers of sequences such as 1,8,32; raises ArgumentTypeError. Each counts once, in order."""
    return tuple(dict.fromkeys(positive(part) for part in text.split(",")))


def add_parser(subparsers: "Subparsers") -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "perf",
        help="measure how fast a model is here, and what the machine could do",
        description="Measure prompts and decoding without engine and gateway, and beside them what the machine can do at "
        "most. Medians of all repeats. A shape is a known model's sizes with random weights: no file is needed.",
    )
    parser.add_argument("model", metavar="MODEL", help=f"shape:NAME (shape: alone lists them), {MODEL_HELP}")
    work = parser.add_argument_group("work")
    work.add_argument(
        "--prompt-tokens",
        type=positive,
        metavar="N",
        default=512,
        help="tokens of the prompt (default: %(default)s)",
    )
    work.add_argument(
        "--chunk-tokens",
        type=positive,
        metavar="N",
        help="prompt tokens of one step (default: all)",
    )
    work.add_argument(
        "--output-tokens",
        type=positive,
        metavar="N",
        default=32,
        help="decode steps of each repeat (default: %(default)s)",
    )
    work.add_argument(
        "--context",
        type=positive,
        metavar="N",
        help="tokens in the KV cache before decoding starts (default: the prompt's)",
    )
    work.add_argument(
        "--batch",
        type=batches,
        metavar="N,N",
        default=(1, 8),
        help="numbers of sequences that decode together (default: 1,8)",
    )
    work.add_argument(
        "--repeat",
        type=positive,
        metavar="N",
        default=5,
        help="how often everything is measured (default: %(default)s)",
    )
    add_format_options(parser.add_argument_group("engine"))
    parser.add_argument("--phases", action="store_true", help="tell where the time of a step goes")
    parser.add_argument("--json", action="store_true", help="print a JSON object with every run")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure and print; raises HeadwayError for what is no model, or does not fit."""
    from headway.cli.perf_report import as_json, as_text
    from headway.cli.perf_run import measure_model
    from headway.runner.measure import Workload

    workload = Workload(
        prompt_tokens=args.prompt_tokens,
        output_tokens=args.output_tokens,
        context=args.prompt_tokens if args.context is None else args.context,
        batches=args.batch,
        chunk_tokens=args.prompt_tokens if args.chunk_tokens is None else args.chunk_tokens,
        repeat=args.repeat,
    )
    result = measure_model(engine_config(args, args.model, ""), workload, phases=args.phases)
    print(json.dumps(as_json(result), indent=2) if args.json else as_text(result))
    return 0
