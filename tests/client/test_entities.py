import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.client import entities, entity_code
from headway.client.entities import (
    MAX_REMEMBERED,
    Memory,
    Remembered,
    described,
    entities_of,
    ranked,
    remember,
)
from headway.client.entity import Entity

MESSAGE = """The job in src/jobs/run.py must not take more than 40 MB.

```
KeyError: 'job'
```

~~~python
class Runner:
    def start(self):
        raise ValueError("must never happen")
~~~
"""


def texts(found: list[Entity]) -> list[tuple[str, str]]:
    return [(entity.kind, entity.text) for entity in found]


@pytest.mark.parametrize("with_grammars", [True, False])
def test_prose_is_read_by_rules_and_code_by_what_it_defines(
    with_grammars: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not with_grammars:
        monkeypatch.setattr(entities, "definitions", lambda _code, _language: None)
    assert texts(entities_of(MESSAGE, by_user=True)) == [
        ("path", "src/jobs/run.py"),
        ("rule", "The job in src/jobs/run.py must not take more than 40 MB."),
        ("error", "KeyError: 'job'"),
        ("name", "KeyError"),
        ("class", "Runner"),
        ("function", "start"),
    ]


def test_an_answer_sets_no_rules() -> None:
    assert "rule" not in [kind for kind, _ in texts(entities_of(MESSAGE, by_user=False))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("```python\ndef f(): pass", [("function", "f")]),  # a fence that is never closed
        (
            "````md\n```python\ndef f(): pass\n```\n````\nlast_name",
            [("function", "f"), ("name", "last_name")],
        ),
        ("```rust\nfn run() {}\n```", [("function", "run")]),
        ("```unknown\nclass Foo:\n```", [("class", "Foo")]),
        ("inline ```x``` my_name", [("name", "my_name")]),
    ],
)
def test_fences(text: str, expected: list[tuple[str, str]]) -> None:
    assert texts(entities_of(text, by_user=False)) == expected


def memory_of(*turns: list[Entity]) -> Memory:
    memory: Memory = ()
    for turn, found in enumerate(turns):
        memory = remember(memory, found, turn)
    return memory


RULE = Entity("rule", "It must fit into 40 MB.")
PATH = Entity("path", "src/jobs/run.py")
CLASS = Entity("class", "Runner")
NAME = Entity("name", "retry_count")


def test_mentions_are_counted_and_the_last_turn_kept() -> None:
    assert memory_of([PATH, NAME], [PATH]) == (Remembered(PATH, 2, 1), Remembered(NAME, 1, 0))


def test_rules_first_then_what_was_said_often_then_what_was_said_last() -> None:
    other = Entity("name", "old_name")
    memory = memory_of([other, NAME, RULE], [NAME, PATH], [CLASS])
    assert ranked(memory, limit=9) == [RULE, CLASS, NAME, PATH, other]
    assert ranked(memory, limit=2) == [RULE, CLASS]


def test_what_the_question_is_about_comes_first() -> None:
    memory = memory_of([RULE, PATH, CLASS, NAME])
    assert ranked(memory, limit=1, about="How often do we retry?") == [NAME]
    assert ranked(memory, limit=9, about="How often do we retry?", related=True) == [NAME]
    assert ranked(memory, limit=9, about="Why must it be so?", related=True) == []


def test_what_is_shown_anyway_is_left_out_but_not_for_a_part_of_a_word() -> None:
    get = Entity("function", "get")
    memory = memory_of([get, PATH])
    assert ranked(memory, limit=9, shown="together, in src/jobs/run.py") == [get]
    assert ranked(memory, limit=9, shown="get it") == [PATH]


def test_a_name_that_a_better_entity_shows_is_not_told_twice() -> None:
    error = Entity("error", "KeyError: 'x'")
    memory = memory_of([Entity("name", "run"), Entity("name", "KeyError"), error, PATH])
    assert ranked(memory, limit=9) == [error, PATH]


def test_sentences_are_few_and_the_newest() -> None:
    rules = [Entity("rule", f"It must hold {number} things.") for number in range(20)]
    memory = memory_of(*[[rule] for rule in rules])
    assert ranked(memory, limit=24) == rules[:-9:-1]


def test_a_memory_is_bounded_and_forgets_the_least() -> None:
    names = [Entity("name", f"name_{number}") for number in range(2 * MAX_REMEMBERED)]
    memory = memory_of([RULE], *[[name] for name in names])
    assert len(memory) == MAX_REMEMBERED
    assert memory[0].entity == RULE
    assert [one.entity for one in memory[1:]] == names[-MAX_REMEMBERED + 1 :]


def test_lines_for_a_model() -> None:
    error = Entity("error", "KeyError: 'x'")
    assert described([RULE, PATH, error, CLASS, NAME]) == [
        "Rules: It must fit into 40 MB.",
        "Errors: KeyError: 'x'",
        "Names: src/jobs/run.py, Runner (class), retry_count",
    ]
    assert described([]) == []


KINDS = st.sampled_from(["rule", "error", "path", "class", "type", "function", "name"])
ENTITIES = st.builds(Entity, KINDS, st.text(min_size=1, max_size=30))


@given(st.lists(st.lists(ENTITIES, max_size=8), max_size=6), st.integers(0, 10), st.text(), st.text())
def test_ranks_are_bounded_repeatable_and_show_nothing_twice(
    turns: list[list[Entity]], limit: int, about: str, shown: str
) -> None:
    memory = memory_of(*turns)
    chosen = ranked(memory, limit=limit, about=about, shown=shown)
    assert chosen == ranked(memory, limit=limit, about=about, shown=shown)
    assert len(chosen) <= limit
    assert len({entity.text for entity in chosen}) == len(chosen)
    assert set(chosen) <= {one.entity for one in memory}


@given(st.text(), st.booleans())
def test_any_message_is_read(text: str, by_user: bool) -> None:
    assert entities_of(text, by_user=by_user) == entities_of(text, by_user=by_user)
    assert entity_code.language_of(text) in (None, *entity_code._GRAMMARS)
