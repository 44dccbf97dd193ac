"""`hookyard up`: the whole system on one machine, in the foreground, under one supervisor.

Order of starting: lock, ports, servers, migrations, roles. The supervisor binds the two public ports itself and hands
the sockets down: a port in use is noticed before anything has started, and while a role restarts its callers wait
instead of being refused. Order of ending: ingest (nothing new comes in), workers, jobs and ops, Valkey, PostgreSQL.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ops import datadir, roles
from ops.embedded import PATIENCE_SECONDS, Server, StillRunning, last_words, trim
from ops.keeping import Child, end, keep
from ops.processes import CannotStart, describe_exit, spawn
from ops.roles import Command, Slot
from ops.settings import Bind, Settings
from ops.slotfiles import forget_gauges
from ops.system import System, choose_servers, remember

_STOP_ORDER = (("ingest",), ("worker",), ("jobs", "ops"), ("valkey",), ("postgres",))
_STEP_SECONDS = 0.1
_COMPLAIN_AFTER_SECONDS = 20.0
_LOGS_EVERY_SECONDS = 30.0
_WAITS_EVERY_SECONDS = 5.0
_SOCKET_FOLDER_BYTES = 80  # a path of a Unix socket holds 107 bytes


def run_up(settings: Settings, command: Command = roles.hookyard) -> int:
    """Runs the system until it is told to stop; the exit code: 0 after an orderly stop, 1 when it could not start.

    `command` gives the argument list of a role; tests put stand-ins there.
    """
    try:
        with ExitStack() as held:
            asyncio.run(Supervisor(settings, command, held).run())
    except CannotStart as problem:
        print(f"hookyard: {problem}", file=sys.stderr, flush=True)
        return 1
    return 0


def say(line: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads any more
        print(line, flush=True)


@dataclass(frozen=True, slots=True)
class Held:
    """What the supervisor holds for its children: the lock, the listening sockets and a folder for health sockets."""

    lock: int
    ingest: socket.socket
    ops: socket.socket
    folder: Path

    def close_ports(self) -> None:
        self.ingest.close()
        self.ops.close()


class Supervisor:
    """One run of `hookyard up`."""

    def __init__(self, settings: Settings, command: Command, held: ExitStack) -> None:
        self._settings = settings
        self._command = command
        self._stack = held
        self._told_to_stop = asyncio.Event()
        self._hurried = asyncio.Event()
        self._children: list[Child] = []
        self._held: Held | None = None
        self._was_ready = False

    async def run(self) -> None:
        """Until told to stop. Raises CannotStart, with everything stopped again."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        work = asyncio.ensure_future(self._work())
        told = asyncio.ensure_future(self._told_to_stop.wait())
        try:
            await asyncio.wait({work, told}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            told.cancel()
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError, CannotStart):
                await work
            await self._end()
        if self._told_to_stop.is_set():
            say("hookyard stopped")

    def _on_signal(self) -> None:
        if self._told_to_stop.is_set():
            self._hurried.set()
        else:
            say("hookyard is stopping: what is in flight is finished first (a second Ctrl-C hurries)")
        self._told_to_stop.set()

    async def _work(self) -> None:
        self._held = held = self._take()
        system = choose_servers(self._settings)
        say(f"data    {self._settings.data_dir}")
        for note in system.notes:
            say(note)
        await self._start_servers(system)
        remember(self._settings, system, _address(held.ingest), _address(held.ops))
        await self._migrate(system, held.lock)
        slots = roles.slots(self._settings)
        self._children += [self._role_child(slot, slots, system, held) for slot in slots]
        try:
            async with asyncio.TaskGroup() as tasks:
                for child in self._children:
                    tasks.create_task(keep(child, say, may_give_up=lambda: not self._was_ready))
                tasks.create_task(self._announce(system, held))
                tasks.create_task(_trim_logs(system.embedded))
        except* CannotStart as problems:
            raise problems.exceptions[0] from None

    def _take(self) -> Held:
        data_dir = self._settings.data_dir
        datadir.make(data_dir)
        lock = datadir.take_lock(data_dir)
        self._stack.callback(os.close, lock)
        if collide(self._settings.ingest_bind, self._settings.ops_bind):
            raise CannotStart(
                f"HOOKYARD_INGEST_BIND {self._settings.ingest_bind} and HOOKYARD_OPS_BIND {self._settings.ops_bind}"
                " are the same: each needs a port of its own"
            )
        ingest = self._stack.enter_context(listen("HOOKYARD_INGEST_BIND", self._settings.ingest_bind))
        ops = self._stack.enter_context(listen("HOOKYARD_OPS_BIND", self._settings.ops_bind))
        folder = self._stack.enter_context(_socket_folder(data_dir))
        (data_dir / "metrics").mkdir(mode=0o700, exist_ok=True)
        forget_gauges(data_dir / "metrics")  # an earlier run may have had more slots
        return Held(lock, ingest, ops, folder)

    async def _start_servers(self, system: System) -> None:
        children = [Child(server.name, server.start, server.stop_signals) for server in system.embedded]
        self._children += children
        for child in children:
            await _begin_when_free(child)
        for server, child in zip(system.embedded, children, strict=True):
            await _until_ready(server, child)

    async def _migrate(self, system: System, lock: int) -> None:
        environment = roles.environment(self._settings, system, Slot("migrate", 0), ())
        migrate = Child(
            "migrate",
            partial(spawn, self._command("migrate"), env=environment, inherit=[lock]),
            roles.stop_signals("migrate"),
        )
        self._children.append(migrate)
        migrate.begin()
        while migrate.is_alive:
            await asyncio.sleep(_STEP_SECONDS / 2)
        self._children.remove(migrate)
        if migrate.process and migrate.process.returncode:
            raise CannotStart(f"the migration of the database {describe_exit(migrate.process.returncode)}")

    def _role_child(self, slot: Slot, slots: Sequence[Slot], system: System, held: Held) -> Child:
        environment = roles.environment(self._settings, system, slot, slots)
        environment |= {"HOOKYARD_HEALTH_DIR": str(held.folder)}
        environment |= {"HOOKYARD_HEALTH_SOCKET": str(held.folder / f"{slot.name}.sock")}
        inherit = [held.lock]
        if listening := {"ingest": held.ingest, "ops": held.ops}.get(slot.role):
            inherit.append(listening.fileno())
            environment |= {
                f"HOOKYARD_{slot.role.upper()}_FD": str(listening.fileno()),
                f"HOOKYARD_{slot.role.upper()}_BIND": str(_address(listening)),
            }
        start = partial(spawn, self._command(slot.role), env=environment, inherit=inherit)
        gone = partial(forget_gauges, self._settings.data_dir / "metrics", slot.name)
        return Child(slot.name, start, roles.stop_signals(slot.role), gone)

    async def _announce(self, system: System, held: Held) -> None:
        """Says where everything is once the roles say they are ready."""
        began = time.monotonic()
        complained = False
        for name, listening in (("ingest", held.ingest), ("ops", held.ops)):
            while (status := await _health(_address(listening))) != 200:
                if not complained and time.monotonic() - began > _COMPLAIN_AFTER_SECONDS:
                    complained = True
                    say(f"not ready yet: {name} answers {status or 'nothing'} to GET /health/ready")
                await asyncio.sleep(_STEP_SECONDS)
        self._was_ready = True
        say(f"ingest  {_url(held.ingest)}/in/{{partner}}")
        say(f"ops     {_url(held.ops)}/")
        say(f"token   {system.token_line}")
        say("hookyard ready")

    async def _end(self) -> None:
        """Every child has ended, in order, each group within its time."""
        if self._held:
            self._held.close_ports()
        groups = [[child for child in self._children if child.name.split("-")[0] in group] for group in _STOP_ORDER]
        for group in (*groups, self._children):  # last a migration, if that is what was interrupted
            telling = asyncio.ensure_future(_tell_who_is_waited_for(group))
            await end(group, self._hurried)
            telling.cancel()


def collide(one: Bind, other: Bind) -> bool:
    """Whether the second could not be had after the first."""
    everywhere = {"0.0.0.0", "::"}
    return one.port == other.port != 0 and (one.host == other.host or bool({one.host, other.host} & everywhere))


@contextlib.contextmanager
def listen(variable: str, bind: Bind) -> Iterator[socket.socket]:
    """A listening socket. Raises CannotStart, naming the variable, when the address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(*bind, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as problem:
        raise CannotStart(f"{variable} {bind} cannot be used: {problem.strerror}") from None
    with listening:
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(2048)
        except OSError as problem:
            why = (
                "is in use by another program"
                if problem.errno == errno.EADDRINUSE
                else f"cannot be used: {problem.strerror}"
            )
            raise CannotStart(f"{variable} {bind} {why}") from None
        yield listening


@contextlib.contextmanager
def _socket_folder(data_dir: Path) -> Iterator[Path]:
    """An empty folder for Unix sockets, with a path that is short enough for them."""
    inside = data_dir / "run"
    short = len(os.fsencode(inside)) <= _SOCKET_FOLDER_BYTES
    if short:
        shutil.rmtree(inside, ignore_errors=True)
        inside.mkdir(mode=0o700)
    folder = inside if short else Path(tempfile.mkdtemp(prefix="hookyard-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _begin_when_free(child: Child) -> None:
    deadline = time.monotonic() + datadir.DYING_SECONDS
    while True:
        try:
            child.begin()
        except StillRunning:
            if time.monotonic() > deadline:
                raise CannotStart(f"an earlier {child.name} of this data directory is still running") from None
            await asyncio.sleep(_STEP_SECONDS)
        else:
            return


async def _until_ready(server: Server, child: Child) -> None:
    """One death is forgiven: Valkey puts a file it cannot read aside at its second start."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    forgiven = False
    while not await asyncio.to_thread(server.is_ready):
        if not child.is_alive and not forgiven:
            forgiven = True
            await _begin_when_free(child)
        elif not child.is_alive or time.monotonic() > deadline:
            raise CannotStart(f"the embedded {server.name} did not start: {last_words(server)}")
        await asyncio.sleep(_STEP_SECONDS / 2)


async def _health(where: Bind) -> int:
    """The status of GET /health/ready, 0 when there is no answer."""
    with contextlib.suppress(OSError, ValueError, IndexError, TimeoutError):
        async with asyncio.timeout(3):
            reader, writer = await asyncio.open_connection(*_callable(where))
            try:
                writer.write(b"GET /health/ready HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                return int((await reader.readline()).split()[1])
            finally:
                writer.close()
    return 0


async def _tell_who_is_waited_for(children: Sequence[Child]) -> None:
    while True:
        await asyncio.sleep(_WAITS_EVERY_SECONDS)
        say(f"hookyard waits for {', '.join(child.name for child in children if child.is_alive)}")


async def _trim_logs(servers: Iterable[Server]) -> None:
    while True:
        for server in servers:
            trim(server.log)
        await asyncio.sleep(_LOGS_EVERY_SECONDS)


def _address(listening: socket.socket) -> Bind:
    host, port = listening.getsockname()[:2]
    return Bind(host, port)


def _callable(bind: Bind) -> Bind:
    """Where a server that listens everywhere can be called from this machine."""
    return bind._replace(host={"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bind.host, bind.host))


def _url(listening: socket.socket) -> str:
    return f"http://{_callable(_address(listening))}"
