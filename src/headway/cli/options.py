"""Options that several subcommands share: how a model is run, and how Headway logs."""

import argparse
import math
import os
import re
from typing import get_args

from headway.core.config import (
    ActivationFormat,
    EngineConfig,
    InstructionSet,
    KvFormat,
    PolicyName,
    SchedulerConfig,
    WeightFormat,
)
from headway.core.errors import ConfigError
from headway.models.sources import MODELS

_ENGINE = EngineConfig(model="")
_SCHEDULER = SchedulerConfig()
_MOST_DIGITS = 18
_LARGEST = 10**_MOST_DIGITS - 1
"""What 63 bits hold, which is what messages to the engine's process hold."""
MAX_SECONDS = 10**9
"""30 years, whose nanoseconds 63 bits hold."""
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


MODEL_HELP = (
    f"a known name ({', '.join(MODELS)}), the path of a .gguf file or of a model's folder, or owner/name of a model on "
    "the Hugging Face hub (owner/name:Q4_K_M for one of several GGUF files)"
)


def byte_size(text: str) -> int:
    """Parse a size such as 512M, 2G or 1.5GiB into bytes (binary units); raises ArgumentTypeError."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 512M or 2G")
    num_bytes = float(match[1]) * _UNITS[match[2].upper()]
    if num_bytes < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is less than a byte")
    if num_bytes > _LARGEST:
        raise argparse.ArgumentTypeError("it is more than any machine has")
    return int(num_bytes)


def api_key(variable: str | None) -> str | None:
    """Return the key that an environment variable holds, None without one's name; raises ConfigError if it is not set."""
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise ConfigError(f"The environment variable {variable} is not set.")
    return key


def positive(text: str) -> int:
    """Parse an integer ≥ 1; raises ArgumentTypeError."""
    if not text.isascii() or not text.isdecimal() or not text.strip("0"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    if len(text.lstrip("0")) > _MOST_DIGITS:
        raise argparse.ArgumentTypeError(f"it is more than {_LARGEST}")
    return int(text)


def not_negative(text: str) -> int:
    """Parse an integer ≥ 0; raises ArgumentTypeError."""
    if not text.isascii() or not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return positive(text) if text.strip("0") else 0


def port_number(text: str) -> int:
    """Parse a TCP port, 0 included; raises ArgumentTypeError (getaddrinfo would take 70000 for 4464)."""
    if not text.isascii() or not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: a whole number from 0 to 65535")
    return int(text)


def model_label(text: str) -> str:
    """Parse the name under which a model is served; raises ArgumentTypeError for one that no request could send well."""
    if not text.strip() or not text.isprintable() or len(text) > 200:
        raise argparse.ArgumentTypeError("a name has 1 to 200 printable characters")
    return text


def web_origin(text: str) -> str:
    """Parse an origin as browsers send it, or `*`; raises ArgumentTypeError (with a path it would never match)."""
    if text not in ("*", "null") and re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/?#\s]+", text.lower()) is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an origin such as https://chat.example.org, without a path"
        )
    return text.lower()


def finite(text: str) -> float:
    """Parse a finite number; raises ArgumentTypeError."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return number


def fraction(text: str) -> float:
    """Parse a number above 0 and below 1; raises ArgumentTypeError."""
    number = finite(text)
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} does not lie between 0 and 1")
    return number


def above_zero(text: str) -> float:
    """Parse a finite number over 0; raises ArgumentTypeError."""
    number = finite(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not over 0")
    return number


def seconds(text: str) -> float:
    """Parse a number of seconds over 0; raises ArgumentTypeError."""
    number = above_zero(text)
    if number > MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is more than {MAX_SECONDS}")
    return number


def milliseconds(text: str) -> float | None:
    """Parse a number of milliseconds over 0 into seconds, `none` into None; raises ArgumentTypeError."""
    if text == "none":
        return None
    seconds(text)
    return float(text) / 1000


def folder(text: str) -> str:
    """Parse the path of a folder; raises ArgumentTypeError for none, which would be the current one."""
    if not text:
        raise argparse.ArgumentTypeError("an empty path names no folder")
    return text


def class_deadlines(text: str) -> tuple[float, float, float]:
    """Parse three numbers of seconds over 0; raises ArgumentTypeError."""
    values = [seconds(part) for part in text.split(",")]
    if len(values) != 3:
        raise argparse.ArgumentTypeError(f"{text!r} is not three numbers of seconds such as 5,60,600")
    return (values[0], values[1], values[2])


def class_shares(text: str) -> tuple[int, int, int]:
    """Parse three whole numbers that add up to 100; raises ArgumentTypeError."""
    values = [positive(part) for part in text.split(",")]
    if len(values) != 3 or sum(values) != 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not three shares that add up to 100, such as 50,30,20")
    return (values[0], values[1], values[2])


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Add the options from which `engine_config` builds an EngineConfig."""
    group = parser.add_argument_group("engine")
    add_format_options(group)
    group.add_argument(
        "--kv-memory",
        type=byte_size,
        metavar="SIZE",
        help="memory for the KV cache, such as 2G (default: chosen from the model and what is free)",
    )
    group.add_argument(
        "--host-kv-memory",
        type=byte_size,
        metavar="SIZE",
        default=_ENGINE.host_kv_bytes,
        help="memory for parts of the KV cache that must make room, such as 1G; more --kv-memory does more (default: none)",
    )
    group.add_argument(
        "--disk-kv",
        type=folder,
        metavar="PATH",
        default=_ENGINE.disk_kv_path,
        help="folder for parts of the KV cache that must make room; they outlive the server, and hold what was said "
        "(default: none)",
    )
    group.add_argument(
        "--disk-kv-size",
        type=byte_size,
        metavar="SIZE",
        default=_ENGINE.disk_kv_bytes,
        help="most that --disk-kv may hold (default: 4G)",
    )
    group.add_argument(
        "--max-context",
        type=positive,
        metavar="TOKENS",
        help="longest prompt plus answer (default: what the model was trained for)",
    )


def add_format_options(group: argparse._ArgumentGroup) -> None:  # argparse names it no other way
    """Add in what formats a model is run, and with what of the processor."""
    group.add_argument(
        "--weights",
        choices=get_args(WeightFormat),
        default=_ENGINE.weights,
        help="runtime format of the weights: auto keeps what the file has (bf16 or less) (default: %(default)s)",
    )
    group.add_argument(
        "--group-size",
        type=int,
        choices=(32, 64, 128),
        default=_ENGINE.group_size,
        help="weights and activations per scale in int8: 32 is more exact, 64 faster (default: 32)",
    )
    group.add_argument(
        "--activations",
        choices=get_args(ActivationFormat),
        default=_ENGINE.activations,
        help="what bf16 weights are multiplied with: bf16 is faster where the CPU has it (default: %(default)s)",
    )
    group.add_argument(
        "--kv",
        choices=get_args(KvFormat),
        default=_ENGINE.kv,
        help="format of the KV cache (default: %(default)s)",
    )
    group.add_argument(
        "--block-size",
        type=positive,
        metavar="TOKENS",
        default=_ENGINE.block_size,
        help="tokens in a block of the KV cache, a multiple of 16: larger blocks waste more memory and share less "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--threads",
        type=positive,
        metavar="N",
        help="threads that compute (default: the CPUs this process may use)",
    )
    group.add_argument(
        "--isa",
        choices=get_args(InstructionSet),
        default=_ENGINE.isa,
        help="force an instruction set (default: the best this CPU has)",
    )


def add_scheduler_options(parser: argparse.ArgumentParser) -> None:
    """Add the limits of a step and of the queue."""
    group = parser.add_argument_group("scheduling")
    group.add_argument(
        "--policy",
        choices=get_args(PolicyName),
        default=_SCHEDULER.policy,
        help="who goes first: slo keeps deadlines, class shares and fairness between tenants, and refuses what would come "
        "too late; fcfs, shortest and bucketed are there for comparison (default: %(default)s)",
    )
    group.add_argument(
        "--itl-target",
        type=milliseconds,
        metavar="MS",
        default=_SCHEDULER.itl_target_s,
        help="most milliseconds between two tokens of a running stream while prompts are read, as far as prompts can be "
        "cut; none = only --max-prefill-tokens counts (default: 50)",
    )
    group.add_argument(
        "--ttft",
        type=class_deadlines,
        metavar="HIGH,NORMAL,LOW",
        default=(_SCHEDULER.high_ttft_s, _SCHEDULER.normal_ttft_s, _SCHEDULER.low_ttft_s),
        help="seconds within which each class's first token is due, where a request does not say; a prompt that takes "
        "more than a quarter of it alone has four times its own time (default: 5,60,600)",
    )
    group.add_argument(
        "--class-shares",
        type=class_shares,
        metavar="HIGH,NORMAL,LOW",
        default=_SCHEDULER.class_shares,
        help="percent of the tokens for each class while all have work waiting (default: 50,30,20)",
    )
    group.add_argument(
        "--lend-high",
        choices=("idle", "never"),
        default=_SCHEDULER.lend_high,
        help="whether other classes may use what high leaves of its share: never keeps it free (default: %(default)s)",
    )
    group.add_argument(
        "--no-prefix-cache",
        action="store_true",
        help="compute every prompt from its first token, for comparison",
    )
    group.add_argument(
        "--max-num-seqs",
        type=positive,
        metavar="N",
        default=_SCHEDULER.max_num_seqs,
        help="sequences that run at once; more wait (default: %(default)s)",
    )
    group.add_argument(
        "--max-prefill-tokens",
        type=positive,
        metavar="TOKENS",
        default=_SCHEDULER.max_prefill_tokens,
        help="most prompt tokens per step, also where the inter-token target would allow more (default: %(default)s)",
    )
    group.add_argument(
        "--max-draft-tokens",
        type=not_negative,
        metavar="TOKENS",
        default=_SCHEDULER.max_draft_tokens,
        help="tokens a sequence guesses per step from what it read and wrote, which speeds up edits and changes no "
        "answer; 0 = none (default: %(default)s)",
    )
    group.add_argument(
        "--session-idle",
        type=seconds,
        metavar="SECONDS",
        default=_SCHEDULER.session_idle_s,
        help="how long a conversation that rests keeps its place in the KV cache before others (default: %(default)g)",
    )
    group.add_argument(
        "--max-queued-requests",
        type=positive,
        metavar="N",
        default=_SCHEDULER.max_queued_requests,
        help="requests of a class that may wait, each choice counting; more are refused with 503 (default: %(default)s)",
    )
    group.add_argument(
        "--max-queued-tokens",
        type=positive,
        metavar="TOKENS",
        default=_SCHEDULER.max_queued_tokens,
        help="prompt tokens of a class that may wait, for each choice; more are refused with 503 (default: %(default)s)",
    )


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """Add how Headway logs (always to stderr)."""
    group = parser.add_argument_group("logging")
    group.add_argument("--log-json", action="store_true", help="one JSON object per line instead of text")
    group.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="least important level that is shown (default: %(default)s)",
    )


def engine_config(args: argparse.Namespace, model: str, model_path: str) -> EngineConfig:
    """Build the engine's settings from parsed options; any but those of formats may be absent."""
    return EngineConfig(
        model=model,
        model_path=model_path,
        weights=args.weights,
        group_size=args.group_size,
        activations=args.activations,
        kv=args.kv,
        isa=args.isa,
        threads=args.threads,
        kv_bytes=getattr(args, "kv_memory", _ENGINE.kv_bytes),
        block_size=args.block_size,
        max_context=getattr(args, "max_context", _ENGINE.max_context),
        host_kv_bytes=getattr(args, "host_kv_memory", _ENGINE.host_kv_bytes),
        disk_kv_path=getattr(args, "disk_kv", _ENGINE.disk_kv_path),
        disk_kv_bytes=getattr(args, "disk_kv_size", _ENGINE.disk_kv_bytes),
        scheduler=scheduler_config(args),
    )


def scheduler_config(args: argparse.Namespace) -> SchedulerConfig:
    """Build the limits of steps and of the queue from parsed options; any may be absent."""
    promised = (_SCHEDULER.high_ttft_s, _SCHEDULER.normal_ttft_s, _SCHEDULER.low_ttft_s)
    ttft: tuple[float, float, float] = getattr(args, "ttft", promised)
    return SchedulerConfig(
        policy=getattr(args, "policy", _SCHEDULER.policy),
        itl_target_s=getattr(args, "itl_target", _SCHEDULER.itl_target_s),
        prefix_cache=not getattr(args, "no_prefix_cache", False),
        high_ttft_s=ttft[0],
        normal_ttft_s=ttft[1],
        low_ttft_s=ttft[2],
        class_shares=getattr(args, "class_shares", _SCHEDULER.class_shares),
        lend_high=getattr(args, "lend_high", _SCHEDULER.lend_high),
        max_num_seqs=getattr(args, "max_num_seqs", _SCHEDULER.max_num_seqs),
        max_prefill_tokens=getattr(args, "max_prefill_tokens", _SCHEDULER.max_prefill_tokens),
        max_draft_tokens=getattr(args, "max_draft_tokens", _SCHEDULER.max_draft_tokens),
        session_idle_s=getattr(args, "session_idle", _SCHEDULER.session_idle_s),
        max_queued_requests=getattr(args, "max_queued_requests", _SCHEDULER.max_queued_requests),
        max_queued_tokens=getattr(args, "max_queued_tokens", _SCHEDULER.max_queued_tokens),
    )
