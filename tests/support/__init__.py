"""What several tests share: tiny models, fakes, servers."""
