"""Who calls: API tokens, JWT, the stores that keep them. It knows no HTTP."""
