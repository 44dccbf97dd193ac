"""Who sends, who receives, and how badly: the partners, the destinations and their habits of every run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from dataclasses import dataclass, field

from tests.acceptance.receiver import RESET, Arrival, Behaviour, Say, fine
from tests.acceptance.sender import JSON, Sender, sending

PATIENCE_SECONDS = 8.0  # of a partner's client for one answer
AGAIN_SECONDS = 0.1
KEYS = 6
LARGE_SHARE, LARGE_BYTES = 0.02, 300_000  # large ones are stored by a flight of their own
POLICY = (
    "--retry-base", "20ms", "--retry-factor", "2", "--retry-cap", "300ms",
    "--breaker-reset", "300ms",
)  # fmt: skip
PATIENT = ("--max-attempts", "10000")
REJECTED, REFUSED = 422, 400  # picky parks at once on the first, and after its three attempts on the second
PICKY_ATTEMPTS = 3
KINDS = ("chaos.storm", "chaos.calm")
VARIED = ("kite", "varied")  # this subscription is changed by people all the time
HOLDING = "careful"  # after what is parked here its lane waits for a person


@dataclass(frozen=True, slots=True)
class Destination:
    """Its options beside POLICY, and how many exchanges it may have at once."""

    options: tuple[str, ...] = PATIENT
    concurrency: int = 10
    timeout_seconds: float = 0.6


DESTINATIONS = {
    "ledger": Destination(),  # answers at once
    "slow": Destination(),  # takes up to 100 ms
    "flaky": Destination(),  # 500 and 503 now and then
    "moody": Destination(),  # hangs or resets now and then
    "lazy": Destination(timeout_seconds=5.5),  # takes longer than a lease
    "narrow": Destination(concurrency=2),  # takes fewer at once than it has lanes
    "gusty": Destination(),  # down for seconds on end: its breaker opens
    "picky": Destination(("--max-attempts", str(PICKY_ATTEMPTS), "--park-on", str(REJECTED))),  # rejects some events
    "free": Destination(concurrency=4),
    "keyed": Destination(concurrency=4),
    "varied": Destination(),
    HOLDING: Destination(("--max-attempts", "10000", "--park-on", str(REJECTED), "--on-park", "hold")),
}


@dataclass(frozen=True, slots=True)
class Partner:
    """How it sends: events per second, requests at once, and whether it sends again what was not acknowledged; or not
    steadily, but so many at a time and then nothing for a while."""

    per_second: float
    at_once: int = 1
    insists: bool = True
    burst: int = 1


PARTNERS = {
    "acme": Partner(10),
    "bolt": Partner(10),
    "crisp": Partner(12),
    "dune": Partner(14, at_once=4),
    "echo": Partner(8, insists=False),
    "fern": Partner(0.25),
    "gull": Partner(0.25),
    "hawk": Partner(0.25),
    "jade": Partner(0.25),
    "kite": Partner(10),
    "lark": Partner(5),
    "iris": Partner(24, at_once=8, burst=15),  # more at a time than is dispatched at once
}
SUBSCRIPTIONS = {
    ("acme", "ledger"): "partner",
    ("acme", "slow"): "partner",
    ("acme", "flaky"): "partner",
    ("acme", "picky"): "partner",
    ("bolt", "ledger"): "partner",
    ("bolt", "moody"): "partner",
    ("bolt", "gusty"): "partner",
    ("crisp", "ledger"): "partner",
    ("crisp", "flaky"): "partner",
    ("crisp", "free"): "none",
    ("dune", "ledger"): "partner",
    ("dune", "keyed"): "key",
    ("echo", "gusty"): "partner",
    ("echo", "picky"): "partner",
    ("fern", "lazy"): "partner",
    ("gull", "lazy"): "partner",
    ("hawk", "lazy"): "partner",
    ("jade", "lazy"): "partner",
    ("iris", "ledger"): "partner",
    ("lark", HOLDING): "partner",
    ("acme", "narrow"): "partner",
    ("bolt", "narrow"): "partner",
    ("crisp", "narrow"): "partner",
    ("dune", "narrow"): "partner",
}


def expected_fate(destination: str, sequence: int) -> str:
    """What must have become of a delivery in the end where nobody discards it: its state, and why it is parked."""
    status = _picky_status(sequence) if destination == "picky" else 200
    return {REJECTED: "parked: rejected", REFUSED: "parked: attempts_exhausted"}.get(status, "delivered")


def commands(url: str) -> list[list[str]]:
    """The command lines that set everything up; below the URL all destinations are found."""
    made = [["partner", "add", name, "--order-key", "json:/key"] for name in PARTNERS]
    for name, destination in DESTINATIONS.items():
        options = [*POLICY, *destination.options, "--concurrency", str(destination.concurrency)]
        options += ["--timeout", f"{destination.timeout_seconds}s"]
        made.append(["destination", "add", name, f"{url}/{name}", *options])
    made += [["subscribe", *pair, "--order", order] for pair, order in SUBSCRIPTIONS.items()]
    return [*made, ["subscribe", *VARIED]]


# --- who receives ----------------------------------------------------------------------------------------------------


def behaviours(dice: random.Random, gusts: Gusts) -> dict[str, Behaviour]:
    """The destinations' habits, by path."""
    return {
        "/ledger": fine,
        "/ledger/": fine,  # its other address
        "/varied": lambda _: Say(200, dice.uniform(0, 0.2)),  # so that some wait when its order is changed
        f"/{HOLDING}": lambda arrival: Say(_careful_status(arrival)),
        "/free": lambda _: Say(200, dice.uniform(0, 0.05)),
        "/keyed": lambda _: Say(200, dice.uniform(0, 0.05)),
        "/slow": lambda _: Say(200, dice.uniform(0, 0.1)),
        "/lazy": lambda _: Say(200, dice.uniform(2.5, 5)),
        "/narrow": lambda _: Say(200, dice.uniform(0.005, 0.04)),
        "/flaky": lambda _: Say(dice.choices((200, 500, 503), (90, 7, 3))[0]),
        "/moody": lambda _: dice.choices((Say(200), None, RESET), (92, 3, 5))[0],
        "/gusty": lambda _: Say(503 if gusts.blow else 200),
        "/picky": lambda arrival: Say(_picky_status(arrival.sequence)),
    }


def _picky_status(sequence: int) -> int:
    return {3: REJECTED, 7: REFUSED}.get(sequence % 10, 200)


def _careful_status(arrival: Arrival) -> int:
    """A person's replay is always welcome."""
    return REJECTED if arrival.sequence % 8 == 3 and not arrival.replay else 200


class Gusts:
    """Whether it blows; while it does, gusty is down."""

    def __init__(self) -> None:
        self.blow = False

    async def come_and_go(self, dice: random.Random) -> None:
        """Until cancelled."""
        try:
            while True:
                await asyncio.sleep(dice.uniform(1, 5))
                self.blow = True
                await asyncio.sleep(dice.uniform(0.5, 3))
                self.blow = False
        finally:
            self.blow = False


# --- who sends -------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Posted:
    """One event as its partner knows it. Never acknowledged (acked_at None): nobody knows whether it is stored."""

    partner: str
    identity: str
    body: bytes
    sent_at: float  # for the first time
    acked_at: float | None = None
    tries: int = 0
    event: str = ""
    sequence: int = 0


@dataclass(slots=True)
class Mail:
    """Everything that was sent, and answers that nobody should get. No other series sends what this one does."""

    series: str
    posted: list[Posted] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)

    @property
    def acknowledged(self) -> int:
        return sum(event.acked_at is not None for event in self.posted)


async def send_all(port: int, seconds: float, dice: random.Random, mail: Mail) -> None:
    """All partners have sent for so long, and those that insist have everything acknowledged."""
    until = time.monotonic() + seconds
    await asyncio.gather(
        *(
            _send(name, lane, port, until, random.Random(dice.getrandbits(32)), mail)
            for name, partner in PARTNERS.items()
            for lane in range(partner.at_once)
        )
    )


async def _send(name: str, lane: int, port: int, until: float, dice: random.Random, mail: Mail) -> None:
    partner = PARTNERS[name]
    pause = partner.at_once * partner.burst / partner.per_second
    async with sending(name, port) as sender:
        number = 0
        while time.monotonic() < until:
            number += 1
            event = _event(name, f"{mail.series}-{name}-{lane}-{number}", dice)
            mail.posted.append(event)
            await _post(sender, event, mail, again=partner.insists)
            if number % partner.burst == 0:
                await asyncio.sleep(max(0.0, min(dice.uniform(0, 2 * pause), until - time.monotonic())))


def _event(partner: str, identity: str, dice: random.Random) -> Posted:
    size = dice.randrange(300) if dice.random() > LARGE_SHARE else LARGE_BYTES // 2
    kind, key = dice.choice(KINDS), f"key-{dice.randrange(KEYS)}"
    body = {"type": kind, "key": key, "id": identity, "noise": dice.randbytes(size).hex()}
    return Posted(partner, identity, json.dumps(body).encode(), time.monotonic())


async def _post(sender: Sender, event: Posted, mail: Mail, *, again: bool) -> None:
    """As a partner's client does: until it is acknowledged, or once."""
    while event.acked_at is None:
        event.tries += 1
        status = 0
        with contextlib.suppress(OSError):  # a TimeoutError is one
            answer = await sender.post(event.body, JSON, f"webhook-id: {event.identity}", seconds=PATIENCE_SECONDS)
            status = answer.status
            if status == 202:
                event.acked_at = time.monotonic()
                event.event, event.sequence = answer.json["event"], answer.json["sequence"]
                if answer.json["duplicate"] and event.tries == 1:
                    mail.odd.append(f"{event.identity} was called a duplicate at once")
            elif status not in (0, 503):
                mail.odd.append(f"{event.identity} was answered {status}: {answer.body[:200]!r}")
            elif status == 503 and "retry-after" not in answer.headers:
                mail.odd.append(f"{event.identity} was answered 503 without Retry-After")
        if status == 0:
            await sender.close()
        if not again or status not in (0, 202, 503):
            return
        if event.acked_at is None:
            await asyncio.sleep(AGAIN_SECONDS)


def key_of(arrival: Arrival) -> str:
    """The order key of what arrived."""
    return str(json.loads(arrival.body)["key"])
