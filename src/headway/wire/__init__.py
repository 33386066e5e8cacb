"""Formats on the wire: OpenAI's requests and responses, server-sent events. No sockets, no engine."""
