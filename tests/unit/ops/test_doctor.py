"""The doctor's verdicts on what was seen."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from ops.doctor import judge, judge_lanes, judge_secrets
from storage.condition import Condition, Waiting
from storage.sealed import Survey

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
WELL = Condition("18.6", NOW, False, (), 1, 1, 64, 0, 1, 0, 0, None, 14, False)


def wrong(seen: Condition, here: datetime = NOW) -> set[str]:
    return {finding.check for finding in judge(seen, here) if not finding.ok}


def test_what_is_well_is_found_well() -> None:
    assert wrong(WELL) == set()


@pytest.mark.parametrize(
    ("changes", "checks"),
    [
        ({"read_only": True}, {"database"}),
        ({"unsafe_settings": ("fsync",)}, {"durability"}),
        ({"unsafe_settings": ("synchronous_commit",)}, {"durability"}),
        ({"synchronous_standbys": 0}, set()),
        ({"synchronous_standbys": 0, "standbys": 0}, set()),
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


def test_a_lane_may_wait_for_as_long_as_its_policys_attempts_can_take() -> None:
    day, second = timedelta(days=1), timedelta(seconds=1)
    default = Waiting("acme", "orders", day, 12, 5 * second, 3.0, day / 4, 30 * second)
    longest = timedelta(hours=27, minutes=10)  # 22 h 33 min and a fifth more by chance, and 6 min of timeouts
    assert judge_lanes([replace(default, age=longest)]).ok
    late = judge_lanes([replace(default, age=day / 24), replace(default, partner="bolt", age=longest + 300 * second)])
    assert not late.ok
    assert "1 lane is older than the policy allows: from bolt to orders" in late.message


def test_what_still_needs_an_old_key_is_counted_and_what_does_not_open_is_named() -> None:
    assert judge_secrets(Survey(0, 0, ())).message == "nothing is sealed"
    rotating = judge_secrets(Survey(3, 1, ()))
    assert (rotating.ok, rotating.message) == (
        True,
        "3 sealed values open; 1 needs an old master key: run `hookyard reseal`",
    )
    lost = judge_secrets(Survey(1, 0, ("the secret of partner acme was sealed …", "another", "a third")))
    assert (lost.ok, lost.message) == (False, "the secret of partner acme was sealed … (and 2 more)")
