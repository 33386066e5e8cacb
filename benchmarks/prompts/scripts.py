"""Twenty scripted conversations of five turns: what the user says, what a good assistant answers, what each turn needs.

Answers are part of the script, so that every way of building prompts is asked the same and facts can be planted in answers,
too. Code comes from the running interpreter's standard library, cut by a fixed seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headway.lab.code_corpus import CodeCorpus, standard_library
from prompts.topics import TOPICS, Topic

SEED = 20_26
_FIRST_LINES, _LINES = 110, 45
"""Of code in the first question, and in each of the next three: about 1,200 and 500 tokens."""


@dataclass(frozen=True, slots=True)
class ScriptTurn:
    """One turn. `needed`: what its prompt must show somewhere for a good answer, none of which the question says."""

    question: str
    answer: str
    needed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Script:
    """One conversation."""

    name: str
    turns: tuple[ScriptTurn, ...]


def scripts(num: int = len(TOPICS)) -> list[Script]:
    """Return the first `num` conversations; the same each time, on one version of Python."""
    corpus = CodeCorpus(standard_library(), SEED)
    return [_script(topic, corpus) for topic in TOPICS[:num]]


def kept(turn: ScriptTurn, texts: Sequence[str]) -> list[str]:
    """Return what of a turn's needs stands in `texts`, the messages of its prompt."""
    return [mark for mark in turn.needed if any(mark in text for text in texts)]


def _script(topic: Topic, corpus: CodeCorpus) -> Script:
    cut = [corpus.take(_FIRST_LINES).text, *(corpus.take(_LINES).text for _ in range(3))]
    return Script(
        topic.module,
        (
            _begin(topic, cut[0]),
            _failure(topic, cut[1]),
            _data(topic, cut[2]),
            _next(topic, cut[3]),
            _review(topic),
        ),
    )


def _begin(topic: Topic, code: str) -> ScriptTurn:
    return ScriptTurn(
        f"I work on {topic.subject}, in {topic.module}. {topic.limit} The rest of the program calls `{topic.entry}`."
        f"\n\n```python\n{code}\n```\n\nWhere would you begin to make it simpler?",
        f"I would begin with `{topic.entry}`: it does three things at once. Take the check of its arguments out first, then "
        "what reads, then what decides. Each part can be tested alone, and the callers see no difference.",
    )


def _failure(topic: Topic, code: str) -> ScriptTurn:
    return ScriptTurn(
        f'When I run it, it stops:\n\n```\nTraceback (most recent call last):\n  File "main.py", line 31, in <module>\n'
        f"{topic.error}\n```\n\nThis is what it was doing:\n\n```python\n{code}\n```\n\nWhat should change?",
        f"The state is read while it is being changed. I would put it into a class of its own, `{topic.helper}`, in "
        f"{topic.helper_path}:\n\n```python\nclass {topic.helper}:\n    def __init__(self) -> None:\n"
        "        self._items = {}\n\n    def snapshot(self) -> list[object]:\n        return list(self._items.values())\n"
        "```\n\nReaders take a snapshot and never see half of a change.",
        (topic.module,),
    )


def _data(topic: Topic, code: str) -> ScriptTurn:
    return ScriptTurn(
        f"{topic.amount} Is a snapshot still right then? The test looks like this:\n\n```python\n{code}\n```",
        "Yes, as long as it is taken once for each request and not once for each item. The test should say so: count the "
        "snapshots and expect one.",
        (topic.entry, topic.helper),
    )


def _next(topic: Topic, code: str) -> ScriptTurn:
    return ScriptTurn(
        f"Now the caller:\n\n```python\n{code}\n```\n\nWrite it so that it uses the class from before, and say into "
        "which files the two parts go.",
        "Then the caller becomes short:\n\n```python\ndef run(source):\n    state = source.snapshot()\n"
        "    for item in state:\n        yield item\n```\n\nThe class stays where it is; this goes beside what calls it.",
        (topic.helper, topic.helper_path, topic.module),
    )


def _review(topic: Topic) -> ScriptTurn:
    return ScriptTurn(
        "Before I commit: does it keep to what I said at the beginning, is it fit for the amount of data I named, and which "
        "function and which error was it all about? I need that for the message.",
        "It does, on all counts.",
        (topic.limit_mark, topic.amount_mark, topic.entry, topic.error, topic.helper),
    )
