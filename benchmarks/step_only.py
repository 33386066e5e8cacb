"""What a runner made for a benchmark need not do."""


class StepOnlyRunner:
    """Computes steps and keeps no blocks to be read, written or copied; a subclass has `info` and `execute`."""

    def read_block(self, block: int) -> bytes:
        """Not needed here."""
        raise NotImplementedError(block)

    def write_block(self, block: int, data: bytes) -> None:
        """Not needed here."""
        raise NotImplementedError(block, data)

    def copy_block(self, source: int, target: int) -> None:
        """Not needed here."""
        raise NotImplementedError(source, target)

    def bind_block(self, block: int) -> None:
        """Do nothing: no block has memory."""
