#!/usr/bin/env python3
"""Checks that a build runs on any x86-64: instructions beyond the baseline only where the dispatcher guards them.

Every object file but the instruction sets' own units must hold no VEX, EVEX or BMI instruction. Those units must offer
nothing that the linker could pick for others: all their symbols are local, but the function that returns their table.
The linked module must hold no more of these instructions than the units. Reads what objdump and nm print; knows no build
system beyond CMake's file names.

Usage: check_baseline.py BUILD_DIRECTORY
"""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ISA_UNITS = {"avx2.cpp.o", "avx512.cpp.o", "avx512bf16.cpp.o"}
GUARDED_SYMBOL = re.compile(r"headway::avx(2|512|512bf16)_kernels\(\)")

_BMI = (
    "andn|bextr|blsi|blsmsk|blsr|bzhi|mulx|pdep|pext|rorx|sarx|shlx|shrx|lzcnt|tzcnt|popcnt|movbe|adcx|adox"
)
# Every VEX and EVEX mnemonic begins with v or, on mask registers, with k; the baseline has verr, verw and virtualisation,
# which no compiler emits.
_BEYOND = re.compile(rf"^(v[a-z0-9]+|k[a-z]+|({_BMI})[lqw]?)$")
_INSTRUCTION = re.compile(
    r"^\s+[0-9a-f]+:\s+(?:(?:lock|rep|repz|repnz|bnd|notrack|data16|cs) )*([a-z][a-z0-9]*)"
)
_FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
_VAGUE = set("WwVvu")
"""nm's letters of symbols that several objects may define and the linker keeps one of."""


def beyond_baseline(path: Path) -> Counter[str]:
    """Count the instructions beyond the baseline by function."""
    found: Counter[str] = Counter()
    function = "?"
    for line in _lines("objdump", "--disassemble", "--demangle", "--no-show-raw-insn", str(path)):
        if match := _FUNCTION.match(line):
            function = match[1]
        elif (match := _INSTRUCTION.match(line)) and _BEYOND.match(match[1]):
            found[function] += 1
    return found


def shared_symbols(path: Path) -> list[str]:
    """Name the symbols that code outside this instruction set's unit could end up using."""
    shared = []
    for line in _lines("nm", "--demangle", "--defined-only", str(path)):
        _, letter, name = line.split(" ", 2)
        if letter in _VAGUE or (letter.isupper() and not GUARDED_SYMBOL.fullmatch(name)):
            shared.append(name)
    return shared


def problems(build: Path) -> Iterator[str]:
    """Yield a sentence per violation."""
    objects = sorted(build.rglob("*.o"))
    modules = sorted(build.rglob("_native*.so"))
    if not objects:
        yield f"{build} holds no object files; build first."
    guarded = 0
    for path in objects:
        found = beyond_baseline(path)
        if path.name in ISA_UNITS:
            guarded += found.total()
            for name in shared_symbols(path):
                yield f"{path.name} shares {name}; give it internal linkage."
        else:
            for function, count in found.items():
                yield f"{path.name}: {function} has {count} instructions beyond the baseline."
    for path in modules:
        count = beyond_baseline(path).total()
        if count > guarded:
            yield f"{path.name} has {count} instructions beyond the baseline, its guarded units {guarded}."
        elif guarded and not count:
            yield f"{path.name} has none of its guarded units' instructions; this check does not see them."


def _lines(*command: str) -> list[str]:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    found = list(problems(Path(sys.argv[1])))
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
