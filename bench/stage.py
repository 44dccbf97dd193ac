"""Where a scenario plays: the whole product in a folder of its own, a sink, loads, and whoever sends and receives."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import psycopg

from bench import cpu
from bench.helper import Helper
from bench.ledger import Ledger
from bench.run import Run
from bench.traffic import Sender, Traffic
from domain.signatures import secret_of
from ops.datadir import master_key, read_servers
from ops.settings import parse_master_keys
from storage import destinations, partners, subscriptions
from storage.secrets import Vault
from storage.subscriptions import Ordering
from storage.transactions import Store
from tests.acceptance.product import Product, free_port

ACTOR = "bench"
SECRET = secret_of(b"the secret of every partner.....")
PATIENCE_SECONDS = 20.0  # without any arrival, before what is missing counts as lost
CONFIGURED_SECONDS = 10.0  # in which every process knows new partners
OPEN = """
SELECT (SELECT coalesce(sum(h.last_seq - t.cursor), 0) FROM partner_heads h JOIN partner_tails t USING (partner_id))
     + (SELECT coalesce(sum(waiting), 0) FROM lanes)
"""


class Load:
    """A load process."""

    def __init__(self, helper: Helper, traffic: Traffic, ledger: Ledger, copies: int) -> None:
        self._helper, self._traffic, self._ledger, self._copies = helper, traffic, ledger, copies

    def start(self) -> Self:
        """It sends."""
        self._helper.say()
        return self

    def finish(self) -> Run:
        """It has sent everything and is gone."""
        told = json.loads(self._helper.hear(self._traffic.seconds + 60))
        self._helper.end()
        return Run(
            self._ledger,
            self._traffic.first,
            told["sent"],
            len(self._traffic.senders),
            told["began_at"],
            told["ended_at"],
            told["cpu_seconds"],
            self._copies,
            is_strict=not self._traffic.keys,
        )


class Stage:
    """The product in a folder of its own, a sink beside it, and the ledger they and the loads share."""

    def __init__(self, folder: Path, capacity: int, held: ExitStack, settings: dict[str, str]) -> None:
        self.folder, self._held = folder, held
        self.ledger = Ledger(folder / "ledger", capacity)
        self._next_row = 1  # row 0 is what a request without a row would name
        self.sink_port = free_port()
        self._sink = self.another_sink(self.sink_port)
        self.product = Product(folder, **settings)
        held.callback(self.product.destroy)
        self.product.start()
        data_dir = folder / ".hookyard"
        servers = read_servers(data_dir)
        assert servers
        self.database_url, self.redis_url = servers.database_url, servers.redis_url
        self.vault = Vault(parse_master_keys(master_key(data_dir)))
        self.store = Store(self.database_url)
        held.callback(self.store.close)

    # --- the sink and the loads ---------------------------------------------------------------------------------------

    def another_sink(self, port: int) -> Helper:
        """A sink at this port too."""
        sink = self.helper("bench.sink", str(port), *self.ledger_at)
        sink.hear()
        return sink

    def helper(self, module: str, *argv: str, environment: Mapping[str, str] = MappingProxyType({})) -> Helper:
        """A helper that ends with the scenario."""
        helper = Helper(module, *argv, environment=environment)
        self._held.callback(helper.end)
        return helper

    @property
    def ledger_at(self) -> tuple[str, str]:
        """The ledger for a helper."""
        return str(self.ledger.path), str(self.ledger.capacity)

    @property
    def sink_seconds(self) -> float:
        """CPU of the sink."""
        return cpu.cpu_seconds(self._sink.pid)

    def rows(self, n: int) -> int:
        """The first of so many rows that nobody has."""
        first, self._next_row = self._next_row, self._next_row + n
        if self._next_row > self.ledger.capacity:
            raise ValueError("the ledger of this scenario is too small")
        return first

    def load(self, traffic: Traffic, copies: int = 1) -> Load:
        """A load that is connected and waits for its start."""
        traffic = replace(traffic, first=self.rows(traffic.events))
        helper = self.helper("bench.load", *self.ledger_at)
        helper.say(traffic.dump())
        helper.hear()
        return Load(helper, traffic, self.ledger, copies)

    # --- who sends and receives --------------------------------------------------------------------------------------

    def senders(self, n: int, prefix: str = "p", **options: Any) -> list[Sender]:
        """New partners that sign by Standard Webhooks unless told otherwise."""
        values: partners.Options = {"verify": "standard", "max_backlog": 10_000_000, **options}  # type: ignore[typeddict-item]
        names = [f"{prefix}{number}" for number in range(n)]
        with self.store.begin() as connection:
            for name in names:
                partners.add(connection, self.vault, name, values, [SECRET], actor=ACTOR)
        return [Sender(name, SECRET) for name in names]

    def destination(self, name: str, path: str = "/ok", **options: Any) -> str:
        """A new destination at a path of the sink."""
        values: Any = {"url": f"http://127.0.0.1:{self.sink_port}{path}", **options}
        with self.store.begin() as connection:
            destinations.add(connection, self.vault, name, values, actor=ACTOR)
        return name

    def subscribe(self, pairs: Iterable[tuple[Sender, str]], ordering: Ordering = "partner") -> None:
        """Each of these partners is joined to its destination."""
        with self.store.begin() as connection:
            for sender, destination in pairs:
                subscriptions.subscribe(connection, sender.name, destination, ordering=ordering, actor=ACTOR)

    def lanes(
        self, n: int, prefix: str = "p", path: str = "/ok", verify: str = "standard", **options: Any
    ) -> list[Sender]:
        """So many partners with a strict destination each; options are the destinations'."""
        senders = self.senders(n, prefix, verify=verify)
        self.subscribe([(sender, self.destination(f"to-{sender.name}", path, **options)) for sender in senders])
        return senders

    # --- what happens ------------------------------------------------------------------------------------------------

    def traffic(self, senders: list[Sender], events: int, connections: int, seconds: float, **more: Any) -> Traffic:
        return Traffic(self.product.ingest_port, senders, 0, events, connections, seconds, **more)

    def make_known(self, senders: list[Sender], scheme: str = "standard") -> None:
        """Every partner is known to every process, and has sent an event or more."""
        deadline = time.monotonic() + CONFIGURED_SECONDS
        while self.load(self.traffic(senders, len(senders), 8, 30, scheme=scheme), 0).start().finish().failed:
            assert time.monotonic() < deadline, "the partners do not become known"
            time.sleep(0.1)

    def warm_up(self, senders: list[Sender], copies: int = 1, each: int = 10, scheme: str = "standard") -> None:
        """Every partner is known, has sent some events, and those have been delivered."""
        self.make_known(senders, scheme)
        traffic = self.traffic(senders, len(senders) * each, 64, 30, scheme=scheme)
        run = self.load(traffic, copies).start().finish()
        self.await_arrivals(run)
        self.await_idle()

    def await_arrivals(self, *runs: Run) -> None:
        """What was accepted has arrived, or nothing has arrived for too long."""
        seen, since = -1, time.monotonic()
        while time.monotonic() - since < PATIENCE_SECONDS:
            if self.ledger.arrivals != seen:
                seen, since = self.ledger.arrivals, time.monotonic()
            elif not any(run.lost for run in runs):
                return
            time.sleep(0.05)

    def await_idle(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Nothing is left to do by the tables, or the time is over."""
        deadline = time.monotonic() + seconds
        while self.ask(OPEN) and time.monotonic() < deadline:
            time.sleep(0.05)

    def ask(self, query: str) -> int:
        """The one number a query gives."""
        with psycopg.connect(self.database_url) as connection:
            row = connection.execute(query.encode()).fetchone()
            return int(row[0]) if row else 0

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far, by role; the load tells its own."""
        return cpu.by_role(self.product) | {"sink": self.sink_seconds}


@contextlib.contextmanager
def stage(capacity: int = 500_000, **settings: Any) -> Iterator[Stage]:
    """The product, ready, with settings of its own, and the sink; everything of it is gone afterwards."""
    with folder() as place, ExitStack() as held:
        yield Stage(place, capacity, held, {name.upper(): str(value) for name, value in settings.items()})


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder that the servers' user can reach; gone afterwards."""
    made = Path(tempfile.mkdtemp(prefix="hookyard-bench-"))
    made.chmod(0o711)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
