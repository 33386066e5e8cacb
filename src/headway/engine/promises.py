"""What requests are promised, and whether it is kept: the memory behind the pure predictions of `promise`."""

from headway.core.config import SchedulerConfig
from headway.core.errors import DeadlineUnmet
from headway.engine.forecast_check import ForecastCheck
from headway.engine.promise import deadline_ns, forecast, lateness, own_ns
from headway.engine.sequence import Sequence
from headway.engine.view import View


class Promises:
    """Owns what one engine has learnt of its predictions."""

    def __init__(self, limits: SchedulerConfig) -> None:
        self._limits = limits
        self._check = ForecastCheck()

    @property
    def factor(self) -> float:
        """By which predicted waits are lengthened, so that most first tokens come within them."""
        return self._check.factor

    def give(
        self, new: Sequence, view: View[Sequence], mean_output: float, now_ns: int
    ) -> DeadlineUnmet | None:
        """Give a sequence that has just come its deadline; return why it is refused, if that cannot be kept.

        Only the `slo` policy refuses: others know no deadlines, so that a prediction would mean nothing. What resumes was
        accepted before.
        """
        alone_ns = own_ns(new.num_expected, view, self._limits)
        asked_ns = new.request.ttft_deadline_ns
        new.deadline_ns = deadline_ns(asked_ns, new.rank, new.arrival_ns, alone_ns, self._limits)
        if self._limits.policy != "slo" or new.request.resumes:
            return None
        predicted = forecast(new, view, self._limits, mean_output, now_ns)
        new.forecast, new.forecast_at_ns = predicted, now_ns
        return lateness(new, predicted, self._check.factor, alone_ns, now_ns)

    def note_first_token(self, sequence: Sequence, now_ns: int) -> None:
        """The first token of a request was drawn."""
        predicted = sequence.forecast
        if predicted is not None and predicted.wait_ns:
            taken_ns = now_ns - sequence.forecast_at_ns
            self._check.observe(predicted.wait_ns, taken_ns - predicted.own_ns)
