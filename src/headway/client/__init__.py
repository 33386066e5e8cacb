"""What a program calls: deadlines, fallbacks, resumed streams, prompts."""
