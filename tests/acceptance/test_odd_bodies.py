"""Bodies that broke others, in and out unharmed; answers that broke others, and the lanes behind them go on."""

from __future__ import annotations

import asyncio
import gzip
from contextlib import AsyncExitStack

from tests.acceptance.invariants import changed, lanes_violations
from tests.acceptance.product import Product
from tests.acceptance.receiver import Receiver
from tests.acceptance.sender import JSON, sending
from tests.bad_destinations import (
    Behaviour,
    Place,
    Reader,
    Writer,
    answering,
    dripping,
    flooding,
    saying,
    serving,
)

FORM = b'--b\r\nContent-Disposition: form-data; name="f"; filename="a.bin"\r\n\r\n\x00\xff\r\n--b--\r\n'
BODIES: dict[str, tuple[bytes, list[str]]] = {
    "an escaped NUL": (rb'{"a":"x\u0000y"}', [JSON]),
    "an escaped backslash before u0000": (rb'{"a":"\\u0000"}', [JSON]),
    "lone surrogates": (rb'{"a":"\ud800","b":"\udfff\ud83d"}', [JSON]),
    "integers of 64 bits and more": (rb'{"id":7615917337495251231,"w":18446744073709551617,"e":1E400}', [JSON]),
    "a float that would be rounded": (b'{"f":0.10000000000000000555,"g":1.0,"h":-0.0}', [JSON]),
    "NaN and infinities": (b'{"a":NaN,"b":-Infinity}', [JSON]),
    "the same key twice": (b'{"a":1,"a":2,"type":"first","type":"second"}', [JSON]),
    "odd whitespace": (b' \t\r\n{ "a" :\n\n1 ,\t"b":  [ ] }\r\n\x0c', [JSON]),
    "invalid UTF-8": (b'{"a":"\xff\xfe\xe9"}', [JSON]),
    "UTF-16 with its mark": ("\ufeff{}".encode("utf-16-le"), ["content-type: application/json; charset=utf-16"]),
    "UTF-8 with a mark": (b"\xef\xbb\xbf{}", [JSON]),
    "NUL bytes": (b"\x00\x00{}\x00", ["content-type: application/octet-stream"]),
    "line ends of others": (b"a\rb\nc\r\nd\xe2\x80\xa8e", ["content-type: text/plain"]),
    "an empty body": (b"", [JSON]),
    "an empty body of no type": (b"", ["x-reason: nothing"]),
    "a form with a file": (FORM, ["content-type: multipart/form-data; boundary=b"]),
    "a form of fields": (b"payload=%7B%22x%22%3A1%7D&a=+", ["content-type: application/x-www-form-urlencoded"]),
    "gzip, as it was sent": (gzip.compress(b'{"a":1}' * 1000), [JSON, "content-encoding: gzip"]),
    "a gzip bomb": (gzip.compress(b"\0" * 50_000_000), [JSON, "content-encoding: gzip"]),
    "gzip that is not": (b"\x1f\x8b\x08\x00not gzip", [JSON, "content-encoding: gzip"]),
    "no content type": (b'{"a":1}', ["x-reason: none"]),
    "a content type of many letters": (b"{}", ["content-type: APPLICATION/Vnd.x+JSON ; Charset=UTF-8"]),
    "100,000 open brackets": (b"[" * 100_000, [JSON]),
    "100,000 open objects": (b'{"a":' * 100_000, [JSON]),
    "a type of odd letters": (b'{"type":"\\u0000\\ud800 \xc3\xa9\\n"}', [JSON]),
    "a type that is no text": (b'{"type":{"a":[1]}}', [JSON]),
    "a type as long as a book": (b'{"type":"' + b"x" * 100_000 + b'"}', [JSON]),
    "a million bytes of every kind": (bytes(range(256)) * 4096, ["content-type: application/octet-stream"]),
}


async def test_bodies_that_break_others_arrive_as_they_were_sent(product: Product, receiver: Receiver) -> None:
    await product.lane("odd-bodies", "archive", receiver.url("/archive"), "--max-attempts", "2")

    async with sending("odd-bodies", product.ingest_port) as sender:
        for body, headers in BODIES.values():
            await sender.send(body, *headers)
        await receiver.until(lambda: len(receiver.successes("/archive")) >= len(BODIES))

    for arrival, (name, (body, headers)) in zip(receiver.arrivals, BODIES.items(), strict=True):
        assert arrival.body == body, name
        for field in ("content-type", "content-encoding"):
            sent = [line.partition(": ")[2] for line in headers if line.startswith(f"{field}:")]
            assert arrival.all(field) == sent, name
    assert changed(receiver.arrivals, sender.accepted) == []
    assert lanes_violations(receiver.arrivals) == {}
    for accepted in sender.accepted[:4]:
        assert (await product.cli("event", "body", accepted.id)).out == accepted.body
        assert (await product.ask("event", "show", accepted.id))["state"] == "delivered"


HEAD = b"HTTP/1.1 200 OK\r\n"


async def say_no_content_and_then_some(place: Place, reader: Reader, writer: Writer) -> None:
    """No content, and content all the same: what is left over must not be taken for the next answer."""
    writer.write(b"HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\nhello")


DELIVERED: dict[str, Behaviour] = {
    "nul-bytes": answering(200, b"\x00\xff\xfe\xed\xa0\x80\x00", b"content-type: text/plain; charset=utf-8"),
    "two-gigabytes": flooding(HEAD + b"content-length: 2147483648\r\n\r\n", b"z" * 65_536, 2**31),
    "one-byte-a-second": dripping(HEAD + b"content-length: 1000\r\n\r\n", b"x", every=1),
    "broken-gzip": answering(200, b"\x1f\x8b\x08\x00this is not gzip", b"content-encoding: gzip"),
    "a-bomb": answering(200, gzip.compress(b"\0" * 50_000_000), b"content-encoding: gzip"),
    "body-of-204": say_no_content_and_then_some,
    "cut-short": saying(HEAD + b"content-length: 10\r\n\r\nabc", close=True),
}
PARKED: dict[str, Behaviour] = {
    "endless-100": dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n", every=0.05),
    "head-by-drops": dripping(HEAD, b"x-a: b\r\n", every=0.05),
    "not-http": saying(b"\x00\x01\x02 220 mail.example ESMTP\r\n\r\n", close=True),
    "nul-bytes-and-500": answering(500, b"\x00\xff\x1b[2J\x00"),
}
MOST_READ = 64 * 2**20  # bytes of 2 GB that fit into the sockets' buffers on the way, with room to spare


async def test_answers_that_break_others_end_at_the_timeout_and_the_lane_goes_on(product: Product) -> None:
    await product.cli("partner", "add", "odd-answers")
    policy = ("--timeout", "600ms", "--max-attempts", "2", "--retry-base", "10ms", "--breaker-failures", "100")
    async with AsyncExitStack() as stack:
        places = {
            name: await stack.enter_async_context(serving(behave)) for name, behave in (DELIVERED | PARKED).items()
        }
        await asyncio.gather(
            *(product.cli("destination", "add", name, place.url(), *policy) for name, place in places.items())
        )
        await asyncio.gather(*(product.cli("subscribe", "odd-answers", name) for name in places))

        async with sending("odd-answers", product.ingest_port) as sender:
            events = [await sender.send(b'{"n":%d}' % number) for number in range(3)]
        await product.settled("odd-answers", seconds=20)
        shown = [await product.ask("event", "show", event.id) for event in events]

    for event in shown:
        states = {delivery["destination"]: delivery["state"] for delivery in event["deliveries"]}
        assert states == dict.fromkeys(DELIVERED, "delivered") | dict.fromkeys(PARKED, "parked")
        counts = {delivery["destination"]: len(delivery["attempts"]) for delivery in event["deliveries"]}
        assert counts == dict.fromkeys(DELIVERED, 1) | dict.fromkeys(PARKED, 2)
        assert all(
            attempt["duration_ms"] < 2_000 for delivery in event["deliveries"] for attempt in delivery["attempts"]
        )
    assert all(place.bodies == [event.body for event in events] for name, place in places.items() if name in DELIVERED)
    assert places["two-gigabytes"].sent < MOST_READ * len(events)
