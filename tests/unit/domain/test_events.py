"""Event ids: an event's place in the log, written down."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.events import EPOCH, BadEventId, event_id, pack_headers, place_of, unpack_headers

PARTNERS = st.integers(0, (1 << 31) - 1)
SEQUENCES = st.integers(1, (1 << 63) - 1)
MILLIS = st.integers(0, (datetime(9999, 12, 31, tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1))
PLACES = st.tuples(MILLIS, PARTNERS, SEQUENCES)
NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
GOOD = event_id(3, 41, NOON)


@given(PARTNERS, SEQUENCES, MILLIS)
def test_an_id_names_the_place_it_was_made_of(partner: int, sequence: int, millis: int) -> None:
    place = place_of(event_id(partner, sequence, EPOCH + timedelta(milliseconds=millis)))

    assert (place.partner_id, place.sequence) == (partner, sequence)
    assert place.received_at == EPOCH + timedelta(milliseconds=millis)


@given(PLACES, PLACES)
def test_ids_sort_by_time_then_partner_then_sequence(one: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    def written(place: tuple[int, int, int]) -> str:
        return event_id(place[1], place[2], EPOCH + timedelta(milliseconds=place[0]))

    assert (written(one) < written(other)) == (one < other)


def test_an_id_is_short_and_safe_in_urls_and_file_names() -> None:
    assert GOOD.startswith("evt_")
    assert len(GOOD) == 33
    assert GOOD.replace("_", "").isalnum()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "evt_",
        GOOD[4:],
        GOOD[:-1],
        GOOD + "0",
        GOOD.upper(),
        "evt_" + GOOD[4:].upper(),
        "evt_" + "z" * 29,
        "evt_" + "v" * 29,  # beyond the calendar
        "evt_" + "0" * 29,  # sequence 0
        GOOD[:-1] + "1",  # bits that no id carries
        GOOD[:-2] + "é" + GOOD[-1],
        GOOD[:-1] + "٣",
        " " + GOOD,
        GOOD + "\n",
        GOOD.replace("evt_", "evt-"),
        "evt_evt_" + GOOD[8:],
        "\0" * 33,
    ],
)
def test_what_no_event_was_named_is_refused(text: str) -> None:
    with pytest.raises(BadEventId):
        place_of(text)


LOOKALIKES = st.text(alphabet="0123456789abcdefghijklmnopqrstuv", min_size=29, max_size=29).map("evt_".__add__)


@given(st.text(max_size=40) | LOOKALIKES)
def test_any_text_is_an_id_or_refused(text: str) -> None:
    try:
        place = place_of(text)
    except BadEventId:
        return
    assert event_id(place.partner_id, place.sequence, place.received_at) == text


NAMES = st.binary(min_size=1).filter(lambda name: not {b":", b"\n"} & {name[i : i + 1] for i in range(len(name))})
VALUES = st.binary().filter(lambda value: b"\n" not in value)


@given(st.lists(st.tuples(NAMES, VALUES)))
def test_headers_are_unpacked_as_they_were_packed(headers: list[tuple[bytes, bytes]]) -> None:
    assert unpack_headers(pack_headers(headers)) == headers
