"""Plays a script on a server, one way of building prompts at a time, and notes what each prompt cost and kept."""

import json
import time
from dataclasses import replace
from typing import Any

import httpx2

from headway.client.conversation import begin
from headway.client.dialogue import Dialogue
from headway.client.prompt_message import Prompt
from headway.client.prompt_server import HttpPromptServer
from headway.core.clock import NS_PER_MS
from headway.core.errors import Unavailable
from headway.wire.profile import Profile
from prompts.scripts import Script, kept
from prompts.ways import WINDOW_TOKENS, Way

TIMEOUT_S = 120.0


class NotingServer:
    """A `PromptServer` that notes what its summaries cost; without `remembers` it makes none."""

    def __init__(self, http: httpx2.AsyncClient, *, remembers: bool) -> None:
        self.summaries: list[dict[str, Any]] = []
        self._http = http
        self._remembers = remembers

    async def profile(self) -> Profile:
        """Return the server's profile."""
        return await HttpPromptServer(self._http).profile()

    async def summary(self, prompt: Prompt) -> str:
        """Ask for a summary; raises Unavailable."""
        if not self._remembers:
            return ""
        started_ns = time.perf_counter_ns()
        response = await self._http.post("/v1/summary", json=prompt.fields())
        if response.status_code != httpx2.codes.OK:
            raise Unavailable(response.text)
        answer = response.json()
        self.summaries.append(
            {
                "ms": round((time.perf_counter_ns() - started_ns) / NS_PER_MS, 2),
                **_tokens(answer["usage"]),
                "text": answer["summary"],
            }
        )
        return str(answer["summary"])


async def play(http: httpx2.AsyncClient, script: Script, way: Way) -> dict[str, Any]:
    """Return, turn by turn, tokens sent and cached, TTFT, and what each turn needed and its prompt showed.

    Between an answer and the next question what seems due is done, as while a user reads. What turns out to be due only then
    counts in the TTFT: it begins with the question.
    """
    server = NotingServer(http, remembers=way.remembers)
    conversation = begin(await server.profile(), mode=way.mode, window_tokens=WINDOW_TOKENS)
    if not way.remembers:
        rules = replace(conversation.rules, max_entities=0, max_recalled=0)
        conversation = replace(conversation, rules=rules)
    dialogue = Dialogue(server, conversation)
    turns: list[dict[str, Any]] = []
    for number, turn in enumerate(script.turns):
        if number:
            await dialogue.prepare()
        started_ns = time.perf_counter_ns()
        prompt = await dialogue.ask(turn.question)
        found = await first_token(http, prompt, started_ns)
        shown = kept(turn, [message.content or "" for message in prompt.messages])
        turns.append({**found, "needed": len(turn.needed), "lost": sorted(set(turn.needed) - set(shown))})
        dialogue.answered({"role": "assistant", "content": turn.answer}, prompt_tokens=found["sent"])
    return {"script": script.name, "turns": turns, "summaries": server.summaries}


async def first_token(http: httpx2.AsyncClient, prompt: Prompt, started_ns: int) -> dict[str, Any]:
    """Ask for one token; return `ttft_ms` since `started_ns`, and of the prompt the tokens `sent` and `cached`.

    Raises Unavailable.
    """
    body = {
        **prompt.fields(),
        "max_tokens": 1,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    first_ns = None
    usage = None
    async with http.stream("POST", "/v1/chat/completions", json=body, timeout=TIMEOUT_S) as response:
        if response.status_code != httpx2.codes.OK:
            raise Unavailable((await response.aread()).decode(errors="replace"))
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            if first_ns is None:
                first_ns = time.perf_counter_ns()
            usage = json.loads(line.removeprefix("data: ")).get("usage") or usage
    if first_ns is None or usage is None:
        raise Unavailable("The server's stream has no token, or no usage.")
    return {"ttft_ms": round((first_ns - started_ns) / NS_PER_MS, 2), **_tokens(usage)}


def _tokens(usage: dict[str, Any]) -> dict[str, int]:
    return {"sent": usage["prompt_tokens"], "cached": usage["prompt_tokens_details"]["cached_tokens"]}
