"""Lines: who is first, who leaves, and whose latest goes."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from headway.flow.lines import Lines


@dataclass(frozen=True)
class One:
    order: int
    key: str
    weight: int


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.booleans()), max_size=30))
def test_lines_are_what_a_list_says(steps: list[tuple[str, int, bool]]) -> None:
    lines: Lines[str, One] = Lines()
    model: list[One] = []
    for order, (key, weight, leaves) in enumerate(steps):
        if leaves and model:
            gone = model.pop(weight % len(model))
            assert lines.remove(gone.key, gone)
            assert not lines.remove(gone.key, gone)
        else:
            one = One(order, key, weight)
            lines.append(key, one)
            model.append(one)
        assert len(lines) == len(model)
        assert set(lines) == {one.key for one in model}
        for name in lines:
            assert lines.first(name) == next(one for one in model if one.key == name)
        for size in (len, lambda line: sum(one.weight for one in line)):
            whole = {name: [one for one in model if one.key == name] for name in lines}
            largest = max(whole.values(), key=lambda line: (size(line), line[-1].order), default=[None])
            assert lines.crowded_out(size) == largest[-1]
