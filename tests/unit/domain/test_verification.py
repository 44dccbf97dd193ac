"""Who a sender has proved to be: vectors from the schemes' own authors, then everything a stranger might try."""

import base64
import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.verification import VERIFIED, Draft, Headers, Posting, Reason, find_scheme, schemes
from ingest.public_keys import check_ecdsa, check_ed25519

VECTORS = json.loads((Path(__file__).parents[2] / "data" / "signature_vectors.json").read_text())["vectors"]
SCHEMES = schemes(check_ed25519, check_ecdsa)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOW = 1_700_000_000.0
ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
BODY = b'{ "b":1 , "a":"\xe9"}'


def signed(
    scheme: str = "standard", secret: str = SECRET, body: bytes = BODY, at: float = NOW
) -> list[tuple[bytes, bytes]]:
    draft = Draft(body, secret, {}, at, "msg_1", "push")
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in SCHEMES[scheme].sign(draft)]


def judged(headers: Headers, scheme: str = "standard", *secrets: str, body: bytes = BODY, now: float = NOW) -> Any:
    return SCHEMES[scheme].verify(Posting(headers, body, secrets or (SECRET,), {}, now))


def replaced(name: bytes, value: bytes) -> list[tuple[bytes, bytes]]:
    return [(key, value if key == name else old) for key, old in signed()]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_the_published_vectors_are_judged_as_published(vector: dict[str, Any]) -> None:
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in vector["headers"].items()]
    url = vector.get("url", "")
    posting = Posting(
        headers, base64.b64decode(vector["body_b64"]), vector["secrets"], {"url": url} if url else {},
        vector["now"] or NOW, query=url.partition("?")[2].encode(),
    )  # fmt: skip

    verdict = SCHEMES[vector["scheme"]].verify(posting)

    assert (verdict is VERIFIED) == (vector["expected"] == "valid"), verdict


@pytest.mark.parametrize("shift", [-300, 0, 300])
def test_a_timestamp_within_the_tolerance_is_taken(shift: int) -> None:
    assert judged(signed(at=NOW + shift)) is VERIFIED


@pytest.mark.parametrize(
    ("shift", "reason"), [(-301, Reason.STALE), (301, Reason.EARLY), (-86_400 * 365, Reason.STALE)]
)
def test_a_timestamp_beyond_the_tolerance_is_refused(shift: int, reason: Reason) -> None:
    assert judged(signed(at=NOW + shift)) is reason


@pytest.mark.parametrize("stamp", [b"soon", b"9" * 40, b"-1", b"\xb2\xb3", b"1700000000.0", b"+1700000000", b"17_0"])
def test_a_timestamp_that_is_no_plain_number_is_malformed(stamp: bytes) -> None:
    assert judged(replaced(b"webhook-timestamp", stamp)) is Reason.MALFORMED


@pytest.mark.parametrize("name", [b"webhook-id", b"webhook-timestamp", b"webhook-signature"])
def test_each_header_of_the_proof_must_be_there_once(name: bytes) -> None:
    headers = signed()

    assert judged([header for header in headers if header[0] != name]) is Reason.MISSING
    assert judged(replaced(name, b" ")) is Reason.MISSING
    assert judged([*headers, (name, b"other")]) is Reason.REPEATED


@pytest.mark.parametrize(
    "signature", [b"v1,\xe9\xe9", b"v1,", b"v1", b",", b"v1,!!!!", b"v2,AAAA", b"v1,AAAA v1a,AAAA"]
)
def test_a_strange_signature_is_a_mismatch(signature: bytes) -> None:
    assert judged(replaced(b"webhook-signature", signature)) is Reason.MISMATCH


def test_only_one_spelling_of_a_signature_counts() -> None:
    good = dict(signed())[b"webhook-signature"]
    # the last character before the padding carries two bits that base64 ignores
    spellings = [good[:-2] + bytes([last]) + b"=" for last in ALPHABET]
    same = [other for other in spellings if base64.b64decode(other[3:]) == base64.b64decode(good[3:])]
    assert len(same) == 4

    verdicts = [judged(replaced(b"webhook-signature", other)) for other in same]

    assert verdicts.count(VERIFIED) == 1


def test_a_thousand_signatures_cost_nothing() -> None:
    good = dict(signed())[b"webhook-signature"]
    many = b" ".join([b"v1,AAAA"] * 1000 + [good])
    body = b"x" * 50_000_000

    began = time.thread_time()
    hmac.digest(b"key", body, "sha256")
    hashed = time.thread_time()
    verdict = judged(replaced(b"webhook-signature", many), body=body)

    assert verdict is Reason.MALFORMED
    assert time.thread_time() - hashed < hashed - began


def test_more_signatures_than_anybody_rotates_are_not_looked_at() -> None:
    good = dict(signed())[b"webhook-signature"]

    assert judged(replaced(b"webhook-signature", b" ".join([b"v1,A"] * 31 + [good]))) is VERIFIED
    assert judged(replaced(b"webhook-signature", b" ".join([b"v1,A"] * 32 + [good]))) is Reason.MALFORMED


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_!", "whpk_"])
def test_a_secret_without_bytes_proves_nothing(secret: str) -> None:
    assert judged(signed(secret=""), "standard", secret) is Reason.MISMATCH


def test_while_secrets_rotate_each_of_them_proves_the_sender() -> None:
    new = "whsec_" + base64.b64encode(b"n" * 32).decode()

    assert judged(signed(), "standard", new, SECRET) is VERIFIED
    assert judged(signed(secret=new), "standard", new, SECRET) is VERIFIED
    assert judged(signed(), "standard", new) is Reason.MISMATCH


@pytest.mark.parametrize("scheme", ["standard", "github"])
def test_without_a_secret_nobody_is_let_in(scheme: str) -> None:
    empty_key = hmac.digest(b"", BODY, "sha256").hex().encode()
    github: Headers = [(b"x-hub-signature-256", b"sha256=" + empty_key)]
    headers = github if scheme == "github" else signed()

    assert SCHEMES[scheme].verify(Posting(headers, BODY, (), {}, NOW)) is Reason.UNCONFIGURED
    assert SCHEMES[scheme].verify(Posting(headers, BODY, ("",), {}, NOW)) is Reason.MISMATCH


@pytest.mark.parametrize("value", [b"sha256=", b"sha256=\xe9", b"sha1=" + b"0" * 40, b"SHA256=" + b"0" * 64, b"0" * 64])
def test_a_strange_github_signature_is_malformed(value: bytes) -> None:
    assert judged([(b"x-hub-signature-256", value)], "github", "s") is Reason.MALFORMED


def test_github_takes_lower_case_hex_only_as_github_sends_it() -> None:
    mac = hmac.new(b"s", BODY, hashlib.sha256).hexdigest()

    assert judged([(b"x-hub-signature-256", b"sha256=" + mac.encode())], "github", "s") is VERIFIED
    assert judged([(b"x-hub-signature-256", b"sha256=" + mac.upper().encode())], "github", "s") is Reason.MISMATCH
    assert judged([(b"x-hub-signature", b"sha1=" + b"0" * 40)], "github", "s") is Reason.MISSING


@given(st.lists(st.tuples(st.sampled_from([b"webhook-id", b"webhook-timestamp", b"webhook-signature",
                                           b"x-hub-signature-256"]), st.binary(max_size=80)), max_size=6),
       st.binary(max_size=20))  # fmt: skip
def test_no_stranger_makes_a_scheme_raise_or_passes(headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    for scheme in ("standard", "github"):
        assert isinstance(judged(headers, scheme, body=body), Reason)


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "whpk_", " ", "whsec_!!!", "whpk_AAAA", "whsec_AAAA ", "whsec_é", "a" * 5000]
)
def test_a_secret_that_cannot_be_one_is_refused_without_being_repeated(secret: str) -> None:
    with pytest.raises(ValueError, match=r"secret|key") as refused:
        SCHEMES["standard"].check_secret(secret)
    assert len(secret) < 7 or secret not in str(refused.value)


@pytest.mark.parametrize(
    "secret", [SECRET, SECRET.removeprefix("whsec_"), "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="]
)
def test_a_secret_is_whsec_or_whpk_or_bare_base64(secret: str) -> None:
    SCHEMES["standard"].check_secret(secret)


@pytest.mark.parametrize(
    ("scheme", "secret", "told"),
    [
        ("standard", "whsec_" + "QUFB" * 5, "16 to 64 bytes, not 15"),
        ("standard", "whsec_" + "QUFB" * 22, "16 to 64 bytes, not 66"),
        ("github", "1234567", "at least 8 characters, this one has 7"),
    ],
)
def test_a_secret_that_is_too_short_or_too_long_is_refused(scheme: str, secret: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as refused:
        SCHEMES[scheme].check_secret(secret)
    assert secret not in str(refused.value)


def test_nobody_signs_with_a_public_key() -> None:
    with pytest.raises(ValueError, match="only its partner can sign"):
        signed(secret="whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=")


def test_without_ed25519_at_hand_a_public_key_proves_nothing() -> None:
    (vector,) = [vector for vector in VECTORS if vector["id"] == "svix-v1a-ed25519"]
    headers = [(name.encode(), value.encode()) for name, value in vector["headers"].items()]
    posting = Posting(headers, base64.b64decode(vector["body_b64"]), vector["secrets"], {}, vector["now"])

    assert find_scheme("standard").verify(posting) is Reason.MISMATCH


def test_none_takes_no_secret_and_lets_everybody_in() -> None:
    with pytest.raises(ValueError, match="takes no secret"):
        find_scheme("none").check_secret("x")
    with pytest.raises(ValueError, match="takes no secret"):
        find_scheme("none").generate_secret(bytes(32))
    assert judged([], "none") is VERIFIED


def test_an_unknown_scheme_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'md5' is no verification scheme: none, standard, hmac, basic, .*, zoom"):
        find_scheme("md5")
