"""An outage is told once, whoever meets it, and so is its end."""

from storage.errors import StorageUnavailable
from storage.outage import Outage


def test_an_outage_is_told_once_and_over_when_nothing_fails_any_more() -> None:
    told: list[str] = []
    outage = Outage(told.append, lambda seconds: told.append("over"))

    outage.passed("poll")
    for text in ("refused", "refused", "starting up"):
        outage.met("poll", StorageUnavailable(text))
        outage.met("lease", StorageUnavailable(text))
    assert told == ["refused"]
    outage.passed("poll")
    outage.passed("poll")
    assert told == ["refused"]
    outage.passed("lease")
    assert told == ["refused", "over"]
    outage.met("poll", StorageUnavailable("again"))
    assert told == ["refused", "over", "again"]


def test_another_kind_of_problem_is_told_too() -> None:
    told: list[str] = []
    outage = Outage(told.append)

    outage.met("poll", StorageUnavailable("away"))
    outage.met("poll", ValueError("a defect"))

    assert told == ["away", "a defect"]
