"""A jobs process on no servers at all."""

import pytest

from workers import jobs
from workers.jobs import Jobs, JobsConfig


def test_a_defect_met_again_and_again_is_told_once_and_seen_in_its_health(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(jobs, "PAUSE_SECONDS", 0.0)
    made = Jobs(JobsConfig("postgresql://nowhere.invalid/none", "redis://nowhere.invalid"))

    def broken() -> None:
        raise KeyError("a defect")

    for _ in range(5):
        made._watch_redis(broken)

    assert made.amiss == ["failing"]
    assert capsys.readouterr().out.count("jobs.defect") == 1
