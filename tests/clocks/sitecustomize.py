"""Where this folder is on PYTHONPATH, Python runs this first: the process's wall clock is wrong by so many seconds as
stand in a file, named after its slot (`worker-0`), of the folder that WRONG_CLOCKS names. It may jump at any time."""

import datetime as dt
import os
import time
from datetime import datetime as real
from datetime import tzinfo
from pathlib import Path
from typing import Any

_file = Path(os.environ["WRONG_CLOCKS"], os.environ.get("HOOKYARD_SLOT", "others"))
_time, _time_ns = time.time, time.time_ns


def _wrong_by() -> float:
    try:
        return float(_file.read_text())
    except FileNotFoundError:
        return 0.0


class _Meta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, real)


class _Datetime(real, metaclass=_Meta):
    """Its instances are real ones, whatever now is."""

    def __new__(cls, *arguments: Any, **named: Any) -> Any:
        return real(*arguments, **named)  # noqa: DTZ001 - as it was asked for

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Any:
        return real.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> Any:
        return real.fromtimestamp(time.time(), dt.UTC).replace(tzinfo=None)


time.time = lambda: _time() + _wrong_by()
time.time_ns = lambda: _time_ns() + int(_wrong_by() * 1e9)
dt.datetime = _Datetime  # type: ignore[misc]
