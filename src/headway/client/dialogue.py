"""One conversation with one server: asks it for the profile and for summaries when `prompt` says that they are due.

It sends no chat: `ask` returns what to send, by whatever client, and `answered` takes what came back.
"""

import logging
from collections.abc import Mapping, Sequence

from headway.client.compaction import compacted, num_to_compact
from headway.client.conversation import Context, Conversation, PromptMode, begin, prompt_of
from headway.client.prompt import answered, ask, num_sliding, with_summary
from headway.client.prompt_message import Prompt, read_message
from headway.client.prompt_server import PromptServer
from headway.client.prompt_tokens import CountTokens, TokenEstimate
from headway.core.errors import HeadwayError

logger = logging.getLogger(__name__)


class Dialogue:
    """Owns the conversation's state. Calls do not overlap: a question is asked when the last answer is there.

    count   None = an estimate, which each answer's usage corrects
    """

    def __init__(
        self, server: PromptServer, conversation: Conversation, *, count: CountTokens | None = None
    ) -> None:
        self.conversation = conversation
        self._server = server
        self._count = count
        self._estimate = TokenEstimate()
        self._num_summed_up = 0  # turns, when the last summary of a sliding window was made

    @classmethod
    async def open(
        cls,
        server: PromptServer,
        *,
        mode: PromptMode = "incremental",
        tools: Sequence[Mapping[str, object]] = (),
        examples: Sequence[Mapping[str, object]] = (),
        window_tokens: int | None = None,
        count: CountTokens | None = None,
    ) -> "Dialogue":
        """Begin a conversation by the server's profile, with `tools` and `examples` (messages) as OpenAI's API has them.

        window_tokens   in place of the model's window

        Raises HeadwayError where there is no profile, InvalidRequest for an example that is no message.
        """
        shown = [read_message(example) for example in examples]
        profile = await server.profile()
        conversation = begin(profile, mode=mode, tools=tools, examples=shown, window_tokens=window_tokens)
        return cls(server, conversation, count=count)

    async def ask(self, question: str, context: Context | None = None) -> Prompt:
        """Return the prompt of a question; what is due before it is done first."""
        await self.prepare(question)
        self.conversation = ask(self.conversation, question, context)
        return prompt_of(self.conversation)

    def answered(self, *messages: Mapping[str, object], prompt_tokens: int | None = None) -> None:
        """Take what came back for the last prompt, as OpenAI's API has it: answers, calls, results of tools.

        prompt_tokens   of that prompt, as the answer's usage says

        Raises InvalidRequest for what is no message.
        """
        read = [read_message(message) for message in messages]
        if prompt_tokens is not None:
            self._estimate = self._estimate.learnt(prompt_of(self.conversation), prompt_tokens)
        self.conversation = answered(self.conversation, *read)

    async def prepare(self, question: str | None = None) -> bool:
        """Do what is due before a question: compact, or sum up what the next prompt no longer shows. Return whether it was.

        Called while the user reads an answer, it saves the next question the wait; that is taken to be as long as the last.
        A server that makes no summary costs the summary, not the conversation.
        """
        if question is None:
            question = self.conversation.turns[-1].question if self.conversation.turns else ""
        if num := num_to_compact(self.conversation, self._count or self._estimate, question):
            self.conversation = compacted(self.conversation, num, await self._summary())
        elif num_sliding(self.conversation) and self._num_turns() > self._num_summed_up:
            self._num_summed_up = self._num_turns()
            self.conversation = with_summary(self.conversation, await self._summary())
        else:
            return False
        return True

    def _num_turns(self) -> int:
        return self.conversation.num_dropped + len(self.conversation.turns)

    async def _summary(self) -> str:
        try:
            return await self._server.summary(prompt_of(self.conversation))
        except HeadwayError as error:
            logger.warning("no summary of the conversation: %s", error.message)
            return ""
