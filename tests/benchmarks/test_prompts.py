"""The conversations that prompts are measured with: what they ask for is planted, and each way keeps what it can."""

import json
from typing import Any

import httpx2
import pytest

from headway.client.prompt_message import Prompt, read_message
from headway.client.prompt_tokens import TokenEstimate
from prompts.play import play
from prompts.render import render
from prompts.scripts import kept, scripts
from prompts.summary import figures
from prompts.ways import WAYS

SCRIPTS = scripts()


def test_there_are_twenty_of_five_turns_and_the_same_each_time() -> None:
    assert len(SCRIPTS) == 20
    assert {len(script.turns) for script in SCRIPTS} == {5}
    assert scripts() == SCRIPTS
    assert scripts(3) == SCRIPTS[:3]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_what_a_turn_needs_was_said_before_and_is_not_said_by_its_question(script: Any) -> None:
    for number, turn in enumerate(script.turns):
        said = [text for before in script.turns[:number] for text in (before.question, before.answer)]
        assert kept(turn, said) == list(turn.needed)
        assert kept(turn, [turn.question]) == []
    assert [len(turn.needed) for turn in script.turns] == [0, 1, 2, 3, 5]


class FakeService:
    """Answers as a server whose cache holds what it was sent last, counting four characters a token."""

    def __init__(self, summary: str = "") -> None:
        self.summary = summary
        self.last = ""
        self.num_summaries = 0

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/v1/profile":
            profile = {"model": "m", "role": "You help.", "window_tokens": 8192, "high_water": 0.75}
            return httpx2.Response(200, json=profile)
        body = json.loads(request.content)
        prompt = Prompt(tuple(read_message(message) for message in body["messages"]))
        usage = self._usage(prompt)
        if request.url.path == "/v1/summary":
            self.num_summaries += 1
            return httpx2.Response(200, json={"summary": self.summary, "usage": usage})
        chunks = ({"choices": [{"delta": {"content": "x"}}]}, {"choices": [], "usage": usage})
        events = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
        return httpx2.Response(200, text=events + "data: [DONE]\n\n")

    def _usage(self, prompt: Prompt) -> dict[str, Any]:
        text = "".join(message.content or "" for message in prompt.messages)
        shared = next(
            (i for i, pair in enumerate(zip(text, self.last, strict=False)) if pair[0] != pair[1]), None
        )
        num_shared = min(len(text), len(self.last)) if shared is None else shared
        self.last = text
        sent = TokenEstimate(4.0)(prompt)
        return {"prompt_tokens": sent, "prompt_tokens_details": {"cached_tokens": min(sent, num_shared // 4)}}


async def played(way: str, num: int, service: FakeService) -> list[dict[str, Any]]:
    transport = httpx2.MockTransport(service.answer)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as http:
        return [await play(http, script, WAYS[way]) for script in SCRIPTS[:num]]


@pytest.mark.anyio
async def test_ways_send_and_keep_what_they_should() -> None:
    found = {way: figures(await played(way, 6, FakeService("The goal."))) for way in WAYS}
    full, sliding, told, ours = (found[way] for way in ("full", "last-3", "last-3-told", "incremental"))
    assert full.facts_kept == full.facts_needed == 6 * 11
    assert sliding.facts_kept < told.facts_kept
    assert sliding.facts_kept < ours.facts_kept
    assert ours.late_sent < full.late_sent
    assert ours.late_computed < sliding.late_computed
    assert sliding.summary_ms is None
    assert told.summary_ms is not None
    assert ours.summary_computed < ours.late_sent


@pytest.mark.anyio
async def test_a_conversation_is_compacted_once_or_twice_and_slides_twice() -> None:
    expected = {
        "incremental": {1, 2},
        "last-3-told": {2},
        "last-3": {0},
        "full": {0},
    }  # by the library's code
    for way, nums_summaries in expected.items():
        service = FakeService()
        await played(way, 1, service)
        assert service.num_summaries in nums_summaries


@pytest.mark.anyio
async def test_a_table_has_a_row_for_each_way() -> None:
    data = {
        "date": "2026-11-30",
        "threads": 2,
        "settings": {"conversations": 1},
        "machine": {"cpu": "C", "cpu_flags": ["avx2"], "virtual_machine": False},
        "headway": {"version": "headway 0", "commit": None},
        "cases": {way: {"runs": {"all": await played(way, 1, FakeService("The goal."))}} for way in WAYS},
    }
    text = render(data, "x.json")
    assert [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines()[4:]] == [
        way.title for way in WAYS.values()
    ]
    assert "11 of 11" in text
