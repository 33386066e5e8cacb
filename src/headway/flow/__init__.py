"""How much a caller may: rates that follow behaviour, token budgets, shares. It knows no HTTP and no text."""
