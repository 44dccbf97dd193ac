"""What the machine can do: a bare server, a bare client, raw inserts. The product stands by and has nothing to do."""

from __future__ import annotations

import json
from typing import Any

from bench.ceilings.inserts import insert
from bench.measure import milliseconds
from bench.stage import SECRET, Stage, stage
from bench.traffic import Sender, Traffic
from tests.acceptance.product import free_port

SECONDS = 4.0
SENDERS = [Sender(f"p{n}", SECRET) for n in range(50)]


def play() -> dict[str, Any]:
    with stage(1_000_000) as place:
        return {
            "bare_server": _server(place, 64),
            "bare_server_256": _server(place, 256),
            "bare_client": _client(place),
            "group_insert": {"rows_per_second": round(insert(place.database_url, 200, SECONDS))},
        }


def _server(place: Stage, connections: int) -> dict[str, Any]:
    port = free_port()
    server = place.helper("bench.ceilings.server", str(port))
    server.hear()
    place.load(Traffic(port, SENDERS, 0, 2000, connections, 2)).start().finish()
    run = place.load(Traffic(port, SENDERS, 0, 400_000, connections, SECONDS, distinct=2000), 0).start().finish()
    server.end()
    return {
        "requests_per_second": round(run.accepted_per_second()),
        **milliseconds("", run.answer_ms()),
        "load_cpu_us": round(run.load_seconds / run.sent * 1e6, 1),
    }


def _client(place: Stage) -> dict[str, Any]:
    client = place.helper("bench.ceilings.client", str(place.sink_port), "50", str(SECONDS))
    told = json.loads(client.hear())
    return {
        "requests_per_second": round(told["sent"] / told["seconds"]),
        "cpu_us": round(told["cpu_seconds"] / told["sent"] * 1e6, 1),
    }
