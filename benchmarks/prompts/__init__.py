"""What prompts cost and what they keep: five-turn conversations about code, built in several ways, sent to the server."""
