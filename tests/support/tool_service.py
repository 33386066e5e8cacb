"""A scripted model that writes what a test says, under a chat template that takes tools; and OpenAI's client of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import openai

from headway.models.chat_template import ChatTemplate
from support.gateway_app import Service, service
from support.live_server import live_server
from support.scripted_client import INFO as SMALL_INFO
from support.scripted_client import Script, answering
from support.tool_text import HERMES_SOURCE, MarkedTokenizer

TOKENIZER: Final = MarkedTokenizer()
INFO: Final = msgspec.structs.replace(SMALL_INFO, max_context=4096, num_blocks=256)


def script(text: str, **options: Any) -> Script:
    """Every answer is `text`; options as of `answering`."""
    return answering(TOKENIZER.encode(text), **options)


def tool_service(text: str, source: str = HERMES_SOURCE, **options: Any) -> Service:
    """A service that answers `text` under the template `source`."""
    return service(
        script(text, **options), tokenizer=TOKENIZER, chat_template=ChatTemplate(source), info=INFO
    )


@contextmanager
def openai_client(served: Service) -> Iterator[openai.OpenAI]:
    """OpenAI's client of `served`, over a real server."""
    with (
        live_server(served.app) as (host, port),
        openai.OpenAI(base_url=f"http://{host}:{port}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client
