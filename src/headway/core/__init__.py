"""Values every layer speaks: requests, messages, events, configuration, errors. Standard library and msgspec only."""
