"""What spans call things: OpenTelemetry's conventions for generative AI and HTTP, and our own names beside them.

The conventions for generative AI (semantic-conventions-genai 0.1, status Development) still change names: here is the only
place that has them. Not from the SDK's own list, whose modules go by its version and cost an import.
"""

from collections.abc import Mapping
from typing import Final

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"

METHOD: Final = "http.request.method"
ROUTE: Final = "http.route"
STATUS: Final = "http.response.status_code"
ERROR_TYPE: Final = "error.type"

REQUEST_ID: Final = "headway.request_id"
SERVICE_CLASS: Final = "headway.class"
TOKEN_ID: Final = "headway.token_id"
KIND: Final = "headway.kind"
TENANT: Final = "headway.tenant"
PREEMPTIONS: Final = "headway.preemptions"
SAMPLED_BY: Final = "headway.sampled_by"
SAMPLE_RATIO: Final = "headway.sample_ratio"
STAGE: Final = "headway.stage."
"""And the stage: seconds."""

PROVIDER_NAME: Final = "headway"
OPERATIONS: Final[Mapping[str, str]] = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
    "/v1/summary": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
}
"""Route → the operation it is."""
