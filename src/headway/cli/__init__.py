"""The `headway` command: one file per subcommand; wires the parts together."""
