"""A running product with things to see in it: a lane that flows, one that is stuck, one that parks; and some past."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import sqlalchemy as sa

from ops.datadir import read_servers
from storage.transactions import Store
from tests.acceptance.product import Product, until

TOKEN = "hky_the-token-of-the-town"
HOSTILE = "<script>window.hacked = 1</script>'\"><img src=x onerror='window.hacked = 1'>"
PAST = """
INSERT INTO history (minute, kind, name, role, source, figures)
SELECT date_trunc('minute', now()) - m * interval '1 minute', kind, name, role, 'past', figures
FROM generate_series(1, 58) AS m, LATERAL (VALUES
    ('system', '', 'ingest', jsonb_build_object('accepted', 640 + (m * 37) % 90)),
    ('partner', 'shop', 'ingest', jsonb_build_object('accepted', 420 + (m * 37) % 60, 'duplicates', m % 7)),
    ('partner', 'bank', 'ingest', jsonb_build_object('accepted', 220 + (m * 11) % 30, 'refused:rate', m % 3)),
    ('system', '', 'worker', jsonb_build_object('attempts:success', 620 - 200 * (m < 20)::int + (m * 37) % 60,
        'attempts:timeout', 2 + 12 * (m < 20)::int, 'delivered', 620 - 200 * (m < 20)::int + (m * 37) % 60,
        'lag~18', 500, 'lag~23', 80 + m, 'lag~31', 9 + m % 5)),
    ('destination', 'warehouse', 'worker', jsonb_build_object('attempts:success', 400 + (m * 37) % 60,
        'attempts:http_error', m % 5, 'delivered', 400 + (m * 37) % 60)),
    ('destination', 'ledger', 'worker', jsonb_build_object('attempts:success', 200 * (m > 20)::int,
        'attempts:timeout', 2 + 12 * (m <= 20)::int, 'attempts:http_error', 9 * (m <= 20)::int,
        'parkings:rejected', m % 3, 'latency~16', 150, 'latency~21', 40,
        CASE WHEN m > 20 THEN 'latency~26' ELSE 'latency~47' END, 10,
        'lag~20', 100, 'lag~28', 20)),
    ('system', '', 'jobs', jsonb_build_object('backlog', greatest(0, 20 - m) * 210 + m % 9, 'parked', 3)),
    ('partner', 'shop', 'jobs', jsonb_build_object('backlog', (m * 7) % 9)),
    ('partner', 'bank', 'jobs', jsonb_build_object('backlog', greatest(0, 20 - m) * 210)),
    ('destination', 'ledger', 'jobs', jsonb_build_object('backlog', greatest(0, 20 - m) * 210,
        'breaker', CASE WHEN m > 20 THEN 0 ELSE 1 + m % 2 END, 'in_flight', 1))
) AS past (kind, name, role, figures)
ON CONFLICT DO NOTHING
"""


@dataclass
class Town:
    """A product, its database, and who receives."""

    product: Product
    store: Store
    answers: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.product.ops_port}"

    @property
    def edge(self) -> str:
        return f"http://127.0.0.1:{self.product.ingest_port}/in"

    def rows(self, statement: str, **values: Any) -> list[Any]:
        with self.store.begin() as connection:
            result = connection.execute(sa.text(statement), values)
            return list(result) if result.returns_rows else []

    def one(self, statement: str, **values: Any) -> Any:
        """The one value of the one row."""
        return self.rows(statement, **values)[0][0]

    def post(self, partner: str, kind: str = "order.paid", **members: Any) -> str:
        """The id of an event that was accepted."""
        body = json.dumps({"type": kind, **members}, indent=1)
        headers = {"content-type": "application/json", "x-sent-by": HOSTILE}
        answer = httpx.post(f"{self.edge}/{partner}", content=body, headers=headers)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["event"])

    def ask(self, method: str, path: str, **document: Any) -> Any:
        """What the API answers to the admin."""
        headers = {"authorization": f"Bearer {TOKEN}"}
        answer = httpx.request(method, f"{self.url}/api/v1{path}", json=document or None, headers=headers, timeout=20)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def state_of(self, event: str, destination: str) -> str:
        """The state of one delivery."""
        told = self.ask("GET", f"/events/{event}")["deliveries"]
        return next((d["state"] for d in told if d["destination"] == destination), "received")


def eventually(condition: Callable[[], object]) -> None:
    """The condition holds before long."""
    until(condition, 30, lambda: "it never came to hold")


def is_known(url: str) -> bool:
    """Whether ingest has heard of a partner: only then a body can be too large for it."""
    return httpx.post(url, content=b"x" * (2 << 20)).status_code == 413


def receiver(answers: dict[str, tuple[int, str]]) -> ThreadingHTTPServer:
    """Answers each path as it is told to; 200 where it is told nothing."""

    class Answering(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            status, text = answers.get(self.path, (200, "thank you"))
            self.send_response(status)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Answering)


def settle(product: Product, answers: dict[str, tuple[int, str]], port: int) -> Town:
    """Who sends and who receives is there, and a few events have gone their way."""
    servers = read_servers(product.folder / ".hookyard")
    assert servers
    town = Town(product, Store(servers.database_url, "hookyard browser test"), answers)
    answers |= {"/ledger": (503, "the ledger is closed for the night"), "/mailer": (422, HOSTILE)}
    lanes: dict[str, dict[str, dict[str, Any]]] = {
        "shop": {"warehouse": {}, "mailer": {"park_on": [422]}},
        "bank": {"ledger": {"breaker_failures": 2, "breaker_reset": "1h", "concurrency": 4}},
        "printer": {"warehouse": {}},
    }
    for partner, fed in lanes.items():
        town.ask("POST", "/partners", name=partner)
        for destination, options in fed.items():
            if partner != "printer":
                url = f"http://127.0.0.1:{port}/{destination}"
                town.ask("POST", "/destinations", name=destination, url=url, retry_base="1s", **options)
            town.ask("PUT", f"/subscriptions/{partner}/{destination}", order="partner")
    eventually(lambda: all(is_known(f"{town.edge}/{partner}") for partner in lanes))
    events = [town.post("shop", n=n, customer="Ada") for n in range(3)]
    for n in range(12):
        town.post("bank", "transfer.booked", amount=n)
    eventually(lambda: town.one("SELECT count(*) FROM parked") == 3)
    eventually(lambda: town.one("SELECT count(*) FROM gates WHERE breaker = 'open'") == 1)
    eventually(lambda: town.state_of(events[-1], "warehouse") == "delivered")
    town.rows(PAST)
    return town
