"""The public edge on stand-ins: a log that numbers as the real one does, and a configuration that can be set."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
from prometheus_client import CollectorRegistry

from domain.partners import Partner
from domain.verification import schemes
from ingest.app import Edge
from ingest.health import Health, health_app
from ingest.limits import Limits
from ingest.metrics import IngestMetrics
from storage.configuration import EMPTY
from storage.log import Answer, Arrival

NOW = 1_700_000_000.0
RECEIVED_AT = datetime(2026, 1, 1, tzinfo=UTC)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ACME = Partner(
    1, "acme", 3, "active", "none", {}, (), 100, "reject", None, 1000,
    dedupe="header:webhook-id", type="json:/type", order_key="json:/customer",
)  # fmt: skip
SIGNED = replace(ACME, id=2, name="signed", verify="standard", secrets=(SECRET,))
OCTO = replace(
    ACME, id=3, name="octo", verify="github", secrets=("s",), dedupe="header:X-GitHub-Delivery",
    type="header:X-GitHub-Event", order_key="none", state="paused",
)  # fmt: skip


class FakeLog:
    """Numbers arrivals as the real one does; `say` replaces its answer."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self.say: Callable[[Arrival], Answer] = self._number

    async def accept(self, arrival: Arrival) -> Answer:
        await asyncio.sleep(0)
        return self.say(arrival)

    def _number(self, arrival: Arrival) -> Answer:
        for number, known in enumerate(self.arrivals, 1):
            if arrival.digest is not None and (known.partner_id, known.digest) == (arrival.partner_id, arrival.digest):
                return Answer("repeat", number, RECEIVED_AT, known.body != arrival.body, None)
        self.arrivals.append(arrival)
        return Answer("stored", len(self.arrivals), RECEIVED_AT, False, None)


class FakeConfiguration:
    """What is configured."""

    def __init__(self, *partners: Partner) -> None:
        self.snapshot = EMPTY
        self.set(*partners)

    def set(self, *partners: Partner) -> None:
        by_name = {partner.name: partner for partner in partners}
        self.snapshot = replace(EMPTY, version=self.snapshot.version + 1, partners=by_name)


class Stand:
    """An edge on fakes, and a client for it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.log, self.configuration = FakeLog(), FakeConfiguration(ACME, SIGNED, OCTO)
        self.health = Health(storing=True)
        self.now, self.stopping = NOW, False
        self.edge = Edge(
            self.log, self.configuration, schemes(), IngestMetrics(self.registry), health_app(lambda: self.health),
            Limits(in_flight=10, body_bytes=5000), clock=lambda: self.now, stopping=lambda: self.stopping,
        )  # fmt: skip
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(self.edge), base_url="http://edge")

    async def post(self, path: str = "/in/acme", body: Any = b"{}", **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.post(path, content=body, headers=named)

    def counted(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0
