"""The `usage` object of OpenAI's responses."""

import msgspec

from headway.core.messages import Usage


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """`cached_tokens`: prompt tokens that the prefix cache saved computing."""

    cached_tokens: int


class UsageFields(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of a request, summed over its prompts and choices."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


def usage_fields(usage: Usage) -> UsageFields:
    """Describe a request's usage."""
    return UsageFields(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
        prompt_tokens_details=PromptTokensDetails(usage.cached_tokens),
    )
