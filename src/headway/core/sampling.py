"""How the next token is chosen: one frozen value per request, already validated and free of None-means-default."""

import msgspec


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling settings of one request, shared by its `n` choices.

    temperature          ≥ 0; 0 is greedy (first index among equal maxima)
    top_k                0 = off, else the number of tokens kept
    top_p                (0, 1]; 1 = off
    min_p                [0, 1]; 0 = off; relative to the largest probability
    repetition_penalty   > 0; 1 = off; applies to prompt and output (CTRL, arXiv 1909.05858)
    presence_penalty, frequency_penalty   [-2, 2]; 0 = off; count output tokens only (OpenAI's definition)
    logit_bias           pairs (token id, bias added to the logit)
    seed                 key of the counter-based generator, 0 ≤ seed < 2**64; drawn at acceptance if the caller gave none
    num_logprobs         None = no logprobs; k ≥ 0 = the chosen token's and the k most likely tokens'
                         (log-softmax of the raw logits, before penalties and temperature)
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int = 0
    num_logprobs: int | None = None

    @property
    def needs_history(self) -> bool:
        """Whether sampling must know the tokens so far (any penalty is on)."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0
