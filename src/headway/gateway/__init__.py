"""The HTTP service: parses, admits, tokenises, submits, streams."""
