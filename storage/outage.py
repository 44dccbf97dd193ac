"""An outage is told once when it begins and once when it is over, however many meet it, however often."""

import time
from collections.abc import Callable


class Outage:
    """Several kinds of work that fail together, told as one: `tell` hears what, `tell_over` after how many seconds."""

    __slots__ = ("_began", "_failing", "_tell", "_tell_over")

    def __init__(
        self, tell: Callable[[str], None] = lambda text: None, tell_over: Callable[[float], None] = lambda seconds: None
    ) -> None:
        self._tell, self._tell_over = tell, tell_over
        self._failing: dict[str, type[BaseException]] = {}
        self._began = 0.0

    def met(self, work: str, problem: BaseException) -> None:
        """This work failed. Told if nothing failed before, or nothing in this way: that may be another cause."""
        if not self._failing:
            self._began = time.monotonic()
        if type(problem) not in self._failing.values():
            self._tell(str(problem))
        self._failing[work] = type(problem)

    def passed(self, work: str) -> None:
        """This work does not fail, or is no longer done. Told if it was the last that failed."""
        if self._failing.pop(work, None) is not None and not self._failing:
            self._tell_over(time.monotonic() - self._began)
