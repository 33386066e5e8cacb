"""Model files and what they say: GGUF, tokenizer, chat template, where models come from. It computes nothing."""
