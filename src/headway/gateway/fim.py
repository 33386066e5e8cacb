"""Fill in the middle: the prompt that makes a model write what stands between two texts.

The order is prefix, suffix, middle, as in "Efficient Training of Language Models to Fill in the Middle" (arXiv 2207.14255)
and in the models whose tokens `models/text_side` knows. Texts are data: names of special tokens within them are spelled
out, so a file about such a model does not end its own prompt.
"""

from headway.core.messages import EngineInfo
from headway.gateway.admission import check_min_length
from headway.gateway.served import Tokenizer
from headway.models.text_side import FimTokens


def fill_in_prompt(
    prefix: str, suffix: str, fim: FimTokens, tokenizer: Tokenizer, info: EngineInfo, prompt_param: str
) -> tuple[int, ...]:
    """Return the ids of the prompt; raises ContextExceeded, without encoding, when it is certainly too long."""
    num_least = tokenizer.min_num_tokens(prefix) + tokenizer.min_num_tokens(suffix)
    check_min_length(num_least, info.max_context, prompt_param)
    return (
        *tokenizer.encode(""),  # what begins any text
        fim.prefix,
        *tokenizer.encode(prefix, parse_special=False, add_bos=False),
        fim.suffix,
        *tokenizer.encode_continuation(suffix),
        fim.middle,
    )
