"""The doctor's verdicts on what was seen."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from ops.doctor import judge, judge_secrets
from storage.condition import Condition
from storage.sealed import Survey

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
WELL = Condition("18.6", NOW, False, (), 1, 64, 0, 1, 0, 0, None, 14, False)


def wrong(seen: Condition, here: datetime = NOW) -> set[str]:
    return {finding.check for finding in judge(seen, here) if not finding.ok}


def test_what_is_well_is_found_well() -> None:
    assert wrong(WELL) == set()


@pytest.mark.parametrize(
    ("changes", "checks"),
    [
        ({"read_only": True}, {"database"}),
        ({"unsafe_settings": ("fsync",)}, {"durability"}),
        ({"synchronous_standbys": 0}, set()),
        ({"workers": 0, "unowned_shards": 64}, {"workers", "leases"}),
        ({"orphaned_lanes": 2}, {"in flight"}),
        ({"unfinished_closings": 1}, {"parking"}),
        ({"undispatched_seconds": 61.0}, {"dispatch"}),
        ({"days_ahead": 1}, {"partitions"}),
        ({"in_default_partition": True}, {"partitions"}),
    ],
)
def test_each_ailment_is_named(changes: dict[str, object], checks: set[str]) -> None:
    assert wrong(replace(WELL, **changes)) == checks  # type: ignore[arg-type]


def test_clocks_that_differ_are_found_both_ways() -> None:
    assert wrong(WELL, NOW + timedelta(seconds=9)) == {"clocks"}
    assert wrong(WELL, NOW - timedelta(seconds=9)) == {"clocks"}


def test_what_still_needs_an_old_key_is_counted_and_what_does_not_open_is_named() -> None:
    assert judge_secrets(Survey(0, 0, ())).message == "nothing is sealed"
    rotating = judge_secrets(Survey(3, 1, ()))
    assert (rotating.ok, rotating.message) == (
        True,
        "3 sealed values open; 1 needs an old master key: run `hookyard reseal`",
    )
    lost = judge_secrets(Survey(1, 0, ("the secret of partner acme was sealed …", "another", "a third")))
    assert (lost.ok, lost.message) == (False, "the secret of partner acme was sealed … (and 2 more)")
