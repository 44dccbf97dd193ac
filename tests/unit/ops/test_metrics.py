"""The text of /metrics that comes from the database."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from ops.metrics import Standing, of_database
from storage.backlog import Backlog, Lane
from storage.figures import Gate, Parkings


def a_lane(destination: str, waiting: int = 0, parked: int = 0) -> Lane:
    return Lane(destination, waiting, 0, "closed", parked, None, None, None, None, None)


def a_backlog(partner: str, waiting: int = 0, oldest: float | None = None, lanes: tuple[Lane, ...] = ()) -> Backlog:
    return Backlog(partner, waiting, 0, None, oldest, lanes)


def values(text: str) -> dict[str, float]:
    return {
        "|".join((sample.name, *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


STANDING = Standing(
    [a_backlog("shop", 7, 1.23456, (a_lane("warehouse", 5, 2), a_lane("archive"))), a_backlog("quiet")],
    [Gate("warehouse", "active", "half_open", 3), Gate("archive", "paused", "closed", 0)],
    [Parkings("warehouse", "rejected", 9)],
)


def test_every_partner_and_destination_is_there_and_counts_zero_where_nothing_waits() -> None:
    found = values(of_database(STANDING))

    assert found["hookyard_backlog|shop"] == 7
    assert found["hookyard_backlog|quiet"] == 0
    assert found["hookyard_oldest_undelivered_seconds|shop"] == 1.235
    assert found["hookyard_oldest_undelivered_seconds|quiet"] == 0
    assert found["hookyard_lane_backlog|shop|warehouse"] == 5
    assert found["hookyard_lane_backlog|shop|archive"] == 0
    assert found["hookyard_parked|shop|warehouse"] == 2
    assert found["hookyard_destination_in_flight|warehouse"] == 3
    assert found["hookyard_breaker_state|warehouse"] == 1
    assert found["hookyard_breaker_state|archive"] == 0
    assert found["hookyard_parked_total|warehouse|rejected"] == 9


def test_without_the_database_no_gauge_is_guessed_and_no_total_falls() -> None:
    found = values(of_database(None, STANDING.parkings))

    assert found == {"hookyard_database_up": 0, "hookyard_parked_total|warehouse|rejected": 9}


def test_a_name_given_anew_is_one_series() -> None:
    twice = Standing([a_backlog("shop", 3, 10.0), a_backlog("shop", 4, 5.0)], [], [])
    lines = [line for line in of_database(twice).splitlines() if line.startswith("hookyard_backlog")]

    assert lines == ['hookyard_backlog{partner="shop"} 7']
    assert values(of_database(twice))["hookyard_oldest_undelivered_seconds|shop"] == 10


def test_each_type_is_declared_once_and_each_series_is_there_once() -> None:
    lines = of_database(STANDING).splitlines()
    declared = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    series = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]

    assert len(declared) == len(set(declared))
    assert len(series) == len(set(series))
