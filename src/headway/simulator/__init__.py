"""The simulator: the engine as it is, on a clock that only prediction moves (`headway simulate`, `headway calibrate`)."""
