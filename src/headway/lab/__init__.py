"""Measures latency as a user feels it, on any OpenAI-compatible endpoint. It knows nothing of our own engine or gateway."""
