"""What the dashboard makes of figures and of bodies."""

from typing import Any

import pytest

from ops.dashboard import bodies, words
from ops.dashboard.flows import summary
from ops.dashboard.pace import Paces


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (None, "–"),
        (0, "0 s"),
        (0.0204, "20 ms"),
        (5.64, "5.6 s"),
        (59.4, "59 s"),
        (180, "3 min"),
        (3595, "59 min"),
        (7500, "2 h 5 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_spans_are_told_in_units_of_people(seconds: float | None, told: str) -> None:
    assert words.duration(seconds) == told


def test_no_data_is_no_zero() -> None:
    assert {words.number(None), words.rate(None), words.slope(None), words.size(None), words.moment(None)} == {"–"}
    assert (words.number(0), words.rate(0), words.slope(0), words.size(0)) == ("0", "0.0", "0", "0 B")


def test_why_a_lane_waits_tells_its_seconds_as_a_span() -> None:
    assert words.why("breaker open, probe due in 3595 s") == "breaker open, probe due in 59 min"


def test_json_is_only_indented() -> None:
    sent = b'{"a":1.10,"a":[],"b":[1e400,{"c":"\\u003c, {"}],"d":{}}'

    shown = bodies.indented(sent)

    assert shown is not None
    assert shown.splitlines() == [
        "{",
        '  "a": 1.10,',
        '  "a": [],',
        '  "b": [',
        "    1e400,",
        "    {",
        '      "c": "\\u003c, {"',
        "    }",
        "  ],",
        '  "d": {}',
        "}",
    ]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b'"' + b"a" * (64 << 10) + b'"'])
def test_what_is_no_json_or_too_long_is_not_shown_as_json(body: bytes) -> None:
    assert bodies.indented(body) is None


def test_bytes_are_shown_in_lines_of_sixteen() -> None:
    assert bodies.hexadecimal(b"0123456789abcdef\x00\xff").splitlines() == [
        "00000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef",
        "00000010  00 ff                                            ..",
    ]


def test_a_pace_is_known_after_two_counts_and_forgets_a_count_that_began_again() -> None:
    now = [0.0]
    paces = Paces(lambda: now[0])

    assert paces.measure("in", 100) is None
    now[0] = 2.0
    assert paces.measure("in", 150) == 25
    now[0] = 4.0
    assert paces.measure("in", 3) is None
    assert paces.measure("in", None) is None


def test_the_blocker_of_a_partner_is_its_oldest_lane_that_cannot_move() -> None:
    def lane(waiting: int, oldest: float, blocked_by: str | None, drain: float | None) -> dict[str, Any]:
        told: dict[str, Any] = {"waiting": waiting, "oldest_seconds": oldest, "blocked_by": blocked_by}
        return told | {"drain_seconds": drain, "parked": 1}

    lanes = [lane(5, 50.0, None, 2.0), lane(3, 9.0, "rate", 4.0), lane(2, 40.0, "breaker open", None)]
    told = summary({"oldest_seconds": 50.0, "waiting": 5, "lanes": lanes})

    assert told["blocker"] is lanes[2]
    assert told["drain_seconds"] is None  # one of its lanes does not move
    assert told["parked"] == 3
