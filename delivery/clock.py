"""The clock by which it is too late to start an attempt."""

import time


def boot_seconds() -> float:
    """Seconds of a monotonic clock that goes on while the machine sleeps; the same in every process of the machine."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
