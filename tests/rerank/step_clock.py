"""A clock that only moves when somebody looks at it."""


class StepClock:
    """Every look at the clock costs one millisecond, so every hop takes time."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        self.time += 1
        return self.time
