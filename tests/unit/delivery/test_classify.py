"""What an exchange means, status by status and outcome by outcome."""

import pytest

from delivery.classify import Evidence, Meaning, classify
from delivery.exchange import Exchange, Outcome


def answered(status: int, *retry_after: str) -> Exchange:
    outcome = (
        Outcome.SUCCESS if 200 <= status < 300 else Outcome.REDIRECT if 300 <= status < 400 else Outcome.HTTP_ERROR
    )
    return Exchange(outcome, 1, status, retry_after=retry_after)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 206, 226, 299])
def test_any_2xx_is_delivered_and_good_evidence(status: int) -> None:
    verdict = classify(answered(status), park_on={status})
    assert (verdict.meaning, verdict.evidence) == (Meaning.DELIVERED, Evidence.GOOD)


@pytest.mark.parametrize(
    "status", [101, 300, 301, 302, 304, 307, 308, 408, 425, 429, 500, 501, 502, 503, 504, 599, 600, 999]
)
def test_load_faults_redirects_and_nonsense_are_evidence_against_the_destination(status: int) -> None:
    verdict = classify(answered(status))
    assert (verdict.meaning, verdict.evidence) == (Meaning.FAILED, Evidence.BAD)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 451, 499])
def test_a_4xx_about_one_event_is_no_evidence(status: int) -> None:
    verdict = classify(answered(status))
    assert (verdict.meaning, verdict.evidence) == (Meaning.FAILED, Evidence.NONE)


@pytest.mark.parametrize(("status", "evidence"), [(422, Evidence.NONE), (500, Evidence.BAD), (302, Evidence.BAD)])
def test_a_status_to_park_on_rejects_at_once(status: int, evidence: Evidence) -> None:
    verdict = classify(answered(status), park_on={status})
    assert (verdict.meaning, verdict.evidence) == (Meaning.REJECTED, evidence)


def test_410_is_gone_even_where_it_is_to_be_parked_on() -> None:
    assert classify(answered(410), park_on={410}).meaning is Meaning.GONE


@pytest.mark.parametrize(("status", "heeded"), [(429, True), (503, True), (500, False), (302, False), (413, False)])
def test_retry_after_is_heeded_on_429_and_503_only(status: int, heeded: bool) -> None:
    assert classify(answered(status, "7")).asked == (("7",) if heeded else ())


@pytest.mark.parametrize(
    ("outcome", "meaning", "evidence"),
    [
        (Outcome.TIMEOUT, Meaning.FAILED, Evidence.BAD),
        (Outcome.CONNECT_ERROR, Meaning.FAILED, Evidence.BAD),
        (Outcome.DNS_ERROR, Meaning.FAILED, Evidence.BAD),
        (Outcome.TLS_ERROR, Meaning.FAILED, Evidence.BAD),
        (Outcome.PROTOCOL_ERROR, Meaning.FAILED, Evidence.BAD),
        (Outcome.BLOCKED, Meaning.FAILED, Evidence.BAD),
        (Outcome.INTERRUPTED, Meaning.INTERRUPTED, Evidence.NONE),
        (Outcome.WITHDRAWN, Meaning.WITHDRAWN, Evidence.NONE),
        (Outcome.UNDELIVERABLE, Meaning.UNDELIVERABLE, Evidence.NONE),
    ],
)
def test_an_exchange_without_an_answer_has_its_meaning(outcome: Outcome, meaning: Meaning, evidence: Evidence) -> None:
    verdict = classify(Exchange(outcome, 1))
    assert (verdict.meaning, verdict.evidence) == (meaning, evidence)
