"""What a run of `hookyard up` consists of: which servers are embedded, and the keys and networks everybody uses.

Settings that are given win. What is not given is generated into the data directory, once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from ops import datadir
from ops.datadir import LOOPBACK, ServersFile
from ops.embedded import Postgres, Server, Valkey, free_port, new_password
from ops.place import choose_place
from ops.processes import CannotStart
from ops.settings import Bind, Settings


@dataclass(frozen=True, slots=True)
class System:
    embedded: tuple[Server, ...]
    database_url: str = field(repr=False)
    redis_url: str = field(repr=False)
    master_key: str = field(repr=False)
    admin_token: str = field(repr=False)
    token_line: str = field(repr=False)
    allow_networks: str
    notes: tuple[str, ...]  # lines for the person who started it


def choose_servers(settings: Settings) -> System:
    """The system of these settings; its embedded servers exist but do not run. Raises CannotStart."""
    if settings.database_url and not settings.master_key:
        raise CannotStart("HOOKYARD_MASTER_KEY is not set: with a database of your own it must be (base64 of 32 bytes)")
    if not settings.master_key and datadir.has_lost_its_key(settings.data_dir):
        raise CannotStart(
            f"{settings.data_dir / 'master.key'} is missing, and the secrets stored here cannot be read without it:"
            " restore it, or set HOOKYARD_MASTER_KEY"
        )
    embedded, notes = _embedded(settings)
    urls = {server.name: server.url for server in embedded}
    networks, warning = _networks(settings)
    token = settings.admin_token or datadir.admin_token(settings.data_dir)
    return System(
        embedded=embedded,
        database_url=settings.database_url or urls["postgres"],
        redis_url=settings.redis_url or urls["valkey"],
        master_key=settings.master_key or datadir.master_key(settings.data_dir),
        admin_token=token,
        token_line="as set in HOOKYARD_ADMIN_TOKEN" if settings.admin_token else token,
        allow_networks=networks,
        notes=(*notes, *warning),
    )


def remember(settings: Settings, system: System, ingest: Bind, ops: Bind) -> None:
    """The command line can find all this; passwords and ports of the embedded servers are the same next time."""
    urls = {server.name: server.url for server in system.embedded}
    found = ServersFile(urls.get("postgres", ""), urls.get("valkey", ""), system.allow_networks, str(ingest), str(ops))
    datadir.write_servers(settings.data_dir, found)


def _embedded(settings: Settings) -> tuple[tuple[Server, ...], tuple[str, ...]]:
    if settings.database_url and settings.redis_url:
        return (), ()
    place = choose_place(settings.data_dir)
    known = datadir.read_servers(settings.data_dir) or ServersFile()
    servers: list[Server] = []
    if not settings.database_url:
        servers.append(Postgres(place, *_port_and_password(known.database_url), password_is_new=not known.database_url))
    if not settings.redis_url:
        servers.append(Valkey(place, *_port_and_password(known.redis_url)))
    return tuple(servers), (place.note,) if place.note else ()


def _port_and_password(url: str) -> tuple[int, str]:
    parts = urlsplit(url)
    return free_port(parts.port), unquote(parts.password or "") or new_password()


def _networks(settings: Settings) -> tuple[str, tuple[str, ...]]:
    if settings.allow_networks is not None:
        return ",".join(str(network) for network in settings.allow_networks), ()
    if settings.database_url:
        return "", ()
    return LOOPBACK, (
        f"note    destinations on this machine's loopback are allowed ({LOOPBACK}): HOOKYARD_ALLOW_NETWORKS",
    )
