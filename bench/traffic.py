"""What a load sends: by whom, how much, how fast; and the requests themselves, signed as partners sign."""

from __future__ import annotations

import json
import lzma
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from domain.verification import Draft, find_scheme

PAYLOADS = Path(__file__).parents[1] / "tests" / "data" / "github_webhooks.json.xz"
REAL_BYTES = range(8_000, 30_000)
FILLING = 'the quick brown fox jumps over the lazy dog and bills the customer "again" '


@dataclass(frozen=True, slots=True)
class Sender:
    """A partner as it sends."""

    name: str
    secret: str


@dataclass(frozen=True, slots=True)
class Traffic:
    """Events for the ledger's rows from `first` on, partners taking turns.

    Closed loop: each connection sends when it has its answer, for `seconds` or until `events` are sent. Open loop,
    where a `rate` per second is given: an event is due when it is due, however slow the answers are.
    """

    port: int
    senders: list[Sender]
    first: int
    events: int
    connections: int
    seconds: float
    rate: float = 0
    scheme: str = "standard"
    payloads: str = "small"  # of 1 KiB; "real": of GitHub's, 8 to 30 KB
    keys: int = 0  # values of the header bench-key
    distinct: int = 0  # so many requests are made and sent again and again; 0: each is sent once

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> Traffic:
        found = json.loads(text)
        return cls(**found | {"senders": [Sender(**sender) for sender in found["senders"]]})


def requests(traffic: Traffic) -> Iterator[bytes]:
    """The requests, each with an id of its own."""
    sign = find_scheme(traffic.scheme).sign
    bodies = real_bodies() if traffic.payloads == "real" else [small_body()]
    run = f"{time.time_ns():x}"
    now = time.time()
    for number in range(traffic.distinct or traffic.events):
        sender = traffic.senders[number % len(traffic.senders)]
        body = bodies[number % len(bodies)]
        headers = [
            ("content-type", "application/json"),
            ("bench-row", str(traffic.first + number)),
            *sign(Draft(body, sender.secret, {}, now, f"msg_{run}_{number}", None)),
        ]
        if traffic.keys:
            headers.append(("bench-key", str(random.randrange(traffic.keys))))
        yield post(f"/in/{sender.name}", headers, body)


def post(path: str, headers: list[tuple[str, str]], body: bytes) -> bytes:
    """The bytes of one request."""
    lines = [f"POST {path} HTTP/1.1", "host: 127.0.0.1", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


def small_body(size: int = 1024) -> bytes:
    """JSON of exactly so many bytes."""
    start, end = '{"type":"order.created","data":{"note":', "}}"
    left = size - len(start) - len(end) - 2
    text = (FILLING.replace('"', "'") * (left // len(FILLING) + 1))[:left]
    return f'{start}"{text}"{end}'.encode()


def real_bodies() -> list[bytes]:
    """GitHub's payloads of a usual size."""
    with lzma.open(PAYLOADS) as file:
        found = (json.dumps(one["payload"], separators=(",", ":")).encode() for one in json.load(file)["payloads"])
        return [body for body in found if len(body) in REAL_BYTES]
