"""Which headers pass to a destination, and which may be configured."""

import pytest

from domain.headers import BadHeader, configured, header_value, pass_on


def test_end_to_end_headers_pass_in_order_with_their_duplicates() -> None:
    received = [(b"content-type", b"text/plain"), (b"X-Dup", b"1"), (b"x-dup", b"2"), (b"accept", b"*/*")]
    assert pass_on(received).headers == [(name.lower(), value) for name, value in received]


def test_a_body_keeps_the_type_and_the_encoding_it_came_with() -> None:
    received = [(b"content-type", b"APPLICATION/JSON"), (b"content-encoding", b"gzip")]
    assert pass_on([*received, (b"connection", b"content-type, content-encoding")]).headers == received


@pytest.mark.parametrize(
    "name",
    [
        "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect", "host", "content-length",
        "cookie", "Authorization", "proxy-authorization", "proxy-connection", "proxy-x", "user-agent", "webhook-id",
        "Webhook-Signature", "hookyard-sequence",
    ],
)  # fmt: skip
def test_framing_credentials_and_our_own_names_stay_behind(name: str) -> None:
    assert pass_on([(name.encode(), b"x"), (b"x-a", b"1")]).headers == [(b"x-a", b"1")]


@pytest.mark.parametrize(
    "name",
    [
        "Hookyard_Partner", "hookyard_partner", "Webhook_Id", "WEBHOOK_SIGNATURE", "webhook.id", "Transfer_Encoding",
        "Content_Length", "content_length", "Content_Type", "Content_Encoding", "User_Agent", "Proxy_Authorization",
        "X_Api_Key", "X_Hop",
    ],
)  # fmt: skip
def test_a_name_that_a_destination_may_read_as_another_is_dropped_and_named(name: str) -> None:
    received = [(b"connection", b"x-hop"), (name.encode(), b"evil"), (b"x-a", b"1")]
    passed = pass_on(received, withheld={b"x-api-key"})
    assert passed.headers == [(b"x-a", b"1")]
    assert passed.unprintable == (name.lower().encode(),)


def test_an_underscore_alone_offends_nobody() -> None:
    received = [(b"x_custom", b"1"), (b"x.y", b"2"), (b"content-type", b"text/plain")]
    assert pass_on(received).headers == received
    assert configured("x_custom: 1") == (b"x_custom", b"1")


def test_a_header_named_by_connection_is_of_that_hop_only() -> None:
    received = [(b"connection", b"X-A, close"), (b"x-a", b"1"), (b"x-b", b"2")]
    assert pass_on(received).headers == [(b"x-b", b"2")]


def test_a_header_that_proved_the_partner_stays_behind() -> None:
    assert pass_on([(b"X-Api-Key", b"s3cret")], withheld={b"x-api-key"}).headers == []


def test_what_is_not_printable_ascii_is_dropped_and_named() -> None:
    passed = pass_on([(b"x-meta", b"\xe9"), (b"x a", b"1"), (b"x-nul", b"a\0b"), (b"x-ok", b" a\tb ")])
    assert passed.headers == [(b"x-ok", b"a\tb")]
    assert passed.unprintable == (b"x-meta", b"x a", b"x-nul")


def test_a_configured_header_is_taken_apart() -> None:
    assert configured("X-Api-Token:  a: b ") == (b"x-api-token", b"a: b")
    assert configured("Authorization: Bearer x") == (b"authorization", b"Bearer x")


@pytest.mark.parametrize(
    "text",
    [
        "X-A: b\r\nEvil: 1", "X-A: b\nEvil: 1", "X-A: b\0", "X A: b", "no colon", ": empty", "X-☃: 1", "X-A\r: 1",
        " X-A: 1", "X-A: é", "X-A: \ud800", "", "X-A: " + "a" * 9000,
        "Content-Length: 3", "Transfer-Encoding: chunked", "Host: evil.example", "Connection: close", "webhook-id: x",
        "Hookyard-Attempt: 9", "User-Agent: x", "content-type: x", "Proxy-Authorization: x", "TE: trailers",
        "Hookyard_Attempt: 9", "Content_Length: 3", "content.type: x", "Webhook_Id: x",
    ],
)  # fmt: skip
def test_a_configured_header_cannot_break_a_request_or_speak_for_us(text: str) -> None:
    with pytest.raises(BadHeader):
        configured(text)


def test_a_refused_header_is_not_quoted() -> None:
    with pytest.raises(BadHeader) as refusal:
        configured("X-Token: s3cret\n")
    assert "s3cret" not in str(refusal.value)


def test_an_event_type_becomes_a_header_value_whatever_it_is() -> None:
    assert header_value("order.créé\n") == b"order.cr%C3%A9%C3%A9"
    assert header_value("a\r\nb\0\ud800") == b"a%0D%0Ab%00?"
    assert len(header_value("x" * 1000)) == 256
