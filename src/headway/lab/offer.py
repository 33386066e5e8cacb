"""Carries out a traffic's load, but for a ladder: one part, or several steps one after another."""

from headway.lab.arrivals import Closed, ClosedSteps
from headway.lab.drive import Offered
from headway.lab.loader import Loader
from headway.lab.traffic import Traffic


class Offer:
    """A load that is no ladder."""

    def __init__(self, loader: Loader, traffic: Traffic) -> None:
        self._loader = loader
        self._traffic = traffic
        self._stopped = False

    async def carry_out(self) -> list[Offered]:
        """Return what became of each part."""
        load = self._traffic.load
        if not isinstance(load, Closed | ClosedSteps):
            return [] if self._stopped else [await self._loader.open(self._traffic.offsets_ns())]
        parts: list[Offered] = []
        for step in load.steps if isinstance(load, ClosedSteps) else (load,):
            if self._stopped:
                break
            offered = await self._loader.closed(
                step.num_users,
                num_conversations=self._traffic.step_conversations,
                duration_ns=self._traffic.options.duration_ns,
            )
            parts.append(offered)
        return parts

    def stop(self) -> None:
        """End the part that runs, and begin no other."""
        self._stopped = True
        self._loader.stop()
