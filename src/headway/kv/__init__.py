"""Which KV block holds what: block pool and prefix cache."""
