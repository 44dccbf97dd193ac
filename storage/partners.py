"""Partners, for people: who may send to us, how they prove it, what is read from their events.

Every change and its audit row are one transaction. Whoever locks rows of several kinds, here or anywhere, takes them in
this order, so that no two wait for each other:

1. the worker's lease (owners only),
2. `partner_heads`, then `partner_tails`, by partner,
3. `gates`, by destination,
4. `lanes`, by partner and destination, never by an UPDATE of several rows alone: that locks them as it finds them,
5. what is configured: a destination's or a partner's row, subscriptions, secrets. Their changes also lock the row of
   `installation` until the end, so they come last.
"""

import hashlib
import secrets as randomness
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypedDict

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from domain.sources import parse_source
from domain.values import counted, format_duration, format_rate, parse_name
from domain.verification import chosen_options, find_scheme
from storage import audit
from storage.errors import Conflict, Invalid, NotFound
from storage.names import ids_ever, living
from storage.secrets import PARTNER_SECRET, Vault
from storage.tables import partner_secrets, partners

MAX_BACKLOG = range(1, 1_000_000_001)
MAX_BODY = range(1, (100 << 20) + 1)  # bytes
MAX_RATE = 1_000_000.0  # events per second
MAX_SECRETS = 10  # valid at once: each costs every refused POST one comparison

LOCK_HEAD = sa.text("SELECT last_seq FROM partner_heads WHERE partner_id = :id FOR NO KEY UPDATE")
WAITING = sa.text("""
SELECT coalesce((SELECT sum(waiting) FROM lanes WHERE partner_id = :id), 0)::bigint,
       (SELECT h.last_seq - t.cursor FROM partner_heads h JOIN partner_tails t USING (partner_id)
        WHERE h.partner_id = :id)
""")
SHARDS = sa.text("SELECT shards FROM installation")
MAKE_LOG = (
    sa.text("INSERT INTO partner_heads (partner_id) VALUES (:id)"),
    sa.text("INSERT INTO partner_tails (partner_id) VALUES (:id)"),
)
END_SUBSCRIPTIONS = sa.text(
    "UPDATE subscriptions SET until_seq = :last_seq + 1 WHERE partner_id = :id AND until_seq IS NULL"
)
LOCK_LANES = sa.text("SELECT FROM lanes WHERE partner_id = :id ORDER BY destination_id FOR NO KEY UPDATE")
REST_LANES = sa.text("UPDATE lanes SET active = false WHERE partner_id = :id")
EXPIRE = sa.text("""
UPDATE partner_secrets SET expires_at = now() + :overlap
WHERE partner_id = :id AND (expires_at IS NULL OR expires_at > now() + :overlap)
""")
VALID_SECRETS = sa.text("""
SELECT sealed FROM partner_secrets
WHERE partner_id = :id AND (expires_at IS NULL OR expires_at > now()) ORDER BY id DESC
""")


@dataclass(frozen=True, slots=True)
class Partner:
    """A partner as people see it: no secrets."""

    id: int
    name: str
    shard: int
    state: str
    verify: str
    verify_options: dict[str, str]
    max_backlog: int
    on_backlog_full: str
    rate: float | None
    max_body: int
    dedupe: str
    type: str
    order_key: str
    created_at: datetime


class Options(TypedDict, total=False):
    """What can be chosen; what is not in it keeps its default, or its value in an edit. `rate` None: unlimited."""

    verify: str
    verify_options: dict[str, str]
    max_backlog: int
    on_backlog_full: str
    rate: float | None
    max_body: int
    dedupe: str
    type: str
    order_key: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a removed partner leaves to be delivered."""

    deliveries: int
    undispatched: int

    @property
    def total(self) -> int:
        """Deliveries that wait, and events that may become some."""
        return self.deliveries + self.undispatched

    def __bool__(self) -> bool:
        return self.total > 0


COLUMNS = [partners.c[name] for name in Partner.__slots__]


def listed(connection: sa.Connection, *, after: str = "", limit: int | None = None) -> list[Partner]:
    """Every partner, by name; of those after a name so many where that is asked for."""
    living = partners.c.removed_at.is_(None) & (partners.c.name > after)
    query = sa.select(*COLUMNS).where(living).order_by(partners.c.name).limit(limit)
    return [Partner(*row) for row in connection.execute(query)]


def find(connection: sa.Connection, name: str, *, lock: bool = False) -> Partner:
    """The partner of this name, its row locked against other changes on request. Raises: NotFound."""
    query = sa.select(*COLUMNS)
    query = query.with_for_update(key_share=True) if lock else query
    return Partner(*living(connection, partners, query, name))


def ids_named(connection: sa.Connection, name: str) -> list[int]:
    """Everyone who has or had this name: the events of a removed partner stay findable by it. Raises: NotFound."""
    return ids_ever(connection, partners, name)


def add(
    connection: sa.Connection,
    vault: Vault | None,
    name: str,
    options: Options,
    secrets: Sequence[str] = (),
    *,
    actor: str,
) -> tuple[Partner, str | None]:
    """A new partner with a log of its own, and the secret made for it where its scheme needs one and none was given.

    Of several secrets the first counts as the newest. Raises: Invalid, Conflict.
    """
    values = _defaults(options) | options
    values["verify_options"] = _verify_options(values["verify"], options.get("verify_options", {}))
    check(name, values)
    given, made = _secrets_for(values["verify"], secrets)
    shards = connection.execute(SHARDS).scalar_one()
    row = {"name": name, "shard": shard_of(name, shards), **values}
    query = pg.insert(partners).values(**row).on_conflict_do_nothing().returning(partners.c.id)
    identity = connection.execute(query).scalar_one_or_none()
    if identity is None:
        raise Conflict(f"there is a partner {name!r} already")
    for statement in MAKE_LOG:
        connection.execute(statement, {"id": identity})
    _store_secrets(connection, vault, identity, given)
    audit.record(connection, actor, "partner add", name, _told(options))
    return find(connection, name), made


def edit(
    connection: sa.Connection,
    vault: Vault | None,
    name: str,
    options: Options,
    secrets: Sequence[str] = (),
    *,
    actor: str,
) -> tuple[Partner, str | None]:
    """The given options are changed, nothing else. Another scheme ends the secrets of the old one at once.

    The second value is a secret made for a new scheme. Raises: NotFound, Invalid, Conflict.
    """
    before = find(connection, name, lock=True)
    check(name, options)
    made = None
    if options.get("verify", before.verify) != before.verify:
        options = _moved_defaults(before, options) | options
        options["verify_options"] = _verify_options(options["verify"], options.get("verify_options", {}))
        given, made = _secrets_for(options["verify"], secrets)
        connection.execute(EXPIRE, {"id": before.id, "overlap": timedelta(0)})
        _store_secrets(connection, vault, before.id, given)
    elif secrets:
        raise Conflict(f"the secret of a partner changes by `hookyard partner rotate-secret {name}`")
    elif "verify_options" in options:
        changed = before.verify_options | options["verify_options"]
        options = options | Options(verify_options=_verify_options(before.verify, changed))
    if options:
        connection.execute(partners.update().where(partners.c.id == before.id).values(**options))
    audit.record(connection, actor, "partner edit", name, _told(options))
    return find(connection, name), made


def set_state(connection: sa.Connection, name: str, state: str, *, actor: str) -> bool:
    """The partner is `active` or `paused`; whether that is a change. Raises: NotFound."""
    before = find(connection, name, lock=True)
    if before.state == state:
        return False
    connection.execute(partners.update().where(partners.c.id == before.id).values(state=state))
    audit.record(connection, actor, "partner pause" if state == "paused" else "partner resume", name)
    return True


def rotate_secret(
    connection: sa.Connection, vault: Vault | None, name: str, secret: str | None, overlap: timedelta, *, actor: str
) -> str | None:
    """A new secret is valid from now on, the old ones until the overlap has passed. The secret, if it was made here.

    Raises: NotFound, Invalid.
    """
    partner = find(connection, name, lock=True)
    if not find_scheme(partner.verify).needs_secret:
        raise Conflict(f"partner {name!r} has no secret: --verify {partner.verify} needs none")
    given, made = _secrets_for(partner.verify, [] if secret is None else [secret])
    connection.execute(EXPIRE, {"id": partner.id, "overlap": overlap})
    if len(connection.execute(VALID_SECRETS, {"id": partner.id}).all()) >= MAX_SECRETS:
        raise Conflict(f"{MAX_SECRETS} secrets of partner {name!r} are valid already: wait for an overlap to end")
    _store_secrets(connection, vault, partner.id, given)
    details = {"overlap": format_duration(overlap)}
    audit.record(connection, actor, "partner rotate-secret", name, details)
    return made


def newest_secret(connection: sa.Connection, vault: Vault, partner: Partner) -> str | None:
    """The secret with which the partner would sign now. Raises: CannotOpen."""
    sealed = connection.execute(VALID_SECRETS, {"id": partner.id}).scalars().first()
    return None if sealed is None else vault.open_text(sealed, PARTNER_SECRET, partner.name)


def waiting(connection: sa.Connection, name: str) -> Waiting:
    """What of this partner still has to be delivered. Raises: NotFound."""
    return Waiting(*connection.execute(WAITING, {"id": find(connection, name).id}).one())


def remove(connection: sa.Connection, name: str, *, even_if_waiting: bool = False, actor: str) -> Waiting:
    """Nothing is accepted any more; events stay, and what was accepted is still delivered. What that is.

    A pause ends with the partner: nobody could resume it.

    Raises: NotFound, Conflict where something waits and that was not to be.
    """
    identity = find(connection, name).id
    last_seq = connection.execute(LOCK_HEAD, {"id": identity}).scalar_one()
    connection.execute(LOCK_LANES, {"id": identity}).all()
    left = Waiting(*connection.execute(WAITING, {"id": identity}).one())
    if left and not even_if_waiting:
        raise Conflict(f"{counted(left.total, 'delivery', 'deliveries')} of partner {name!r} still to be made")
    connection.execute(REST_LANES, {"id": identity})
    gone = partners.update().where(partners.c.id == identity, partners.c.removed_at.is_(None))
    if not connection.execute(gone.values(removed_at=sa.func.now(), state="active")).rowcount:
        raise NotFound(f"no partner {name!r}")
    connection.execute(END_SUBSCRIPTIONS, {"id": identity, "last_seq": last_seq})
    connection.execute(partner_secrets.delete().where(partner_secrets.c.partner_id == identity))
    audit.record(connection, actor, "partner remove", name, {"waiting": left.total})
    return left


def shard_of(name: str, shards: int) -> int:
    """The slice of the partners a name falls into; the same on every machine."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % shards


def check(name: str, options: Options) -> None:
    """Returns if every option is allowed. Raises: Invalid, saying which, what was given and what is allowed."""
    try:
        parse_name(name)
        if "verify" in options:
            find_scheme(options["verify"])
        for source in (options.get("dedupe"), options.get("type"), options.get("order_key")):
            if source is not None:
                parse_source(source)
    except ValueError as problem:
        raise Invalid(str(problem)) from problem
    _check_range("max backlog", options.get("max_backlog"), MAX_BACKLOG)
    _check_range("max body", options.get("max_body"), MAX_BODY)
    rate = options.get("rate")
    if rate is not None and not 0 < rate <= MAX_RATE:
        raise Invalid(f"rate {rate:g}/s: above 0 and at most {MAX_RATE:.0f}/s are allowed")
    if options.get("on_backlog_full", "reject") not in ("reject", "accept"):
        raise Invalid(f"on backlog full {options['on_backlog_full']!r}: reject and accept are allowed")


def _check_range(what: str, value: int | None, allowed: range) -> None:
    if value is not None and value not in allowed:
        raise Invalid(f"{what} {value}: {allowed.start} to {allowed.stop - 1} are allowed")


def _defaults(options: Options) -> Options:
    """What the scheme of these options knows by itself."""
    name = options.get("verify", "none")
    try:
        scheme = find_scheme(name)
    except ValueError as problem:
        raise Invalid(str(problem)) from problem
    return Options(verify=name, dedupe=scheme.dedupe, type=scheme.type, on_backlog_full=scheme.on_backlog_full)


def _moved_defaults(before: Partner, options: Options) -> Options:
    """What was at the old scheme's default goes to the new one's."""
    old, new = _defaults(Options(verify=before.verify)), _defaults(options)
    moved = Options()
    if before.dedupe == old["dedupe"]:
        moved["dedupe"] = new["dedupe"]
    if before.type == old["type"]:
        moved["type"] = new["type"]
    if before.on_backlog_full == old["on_backlog_full"]:
        moved["on_backlog_full"] = new["on_backlog_full"]
    return moved


def _verify_options(verify: str, given: dict[str, str]) -> dict[str, str]:
    """All options of the scheme, as given or at their defaults. Raises: Invalid."""
    try:
        return chosen_options(find_scheme(verify), given)
    except ValueError as problem:
        raise Invalid(str(problem)) from problem


def _secrets_for(verify: str, given: Sequence[str]) -> tuple[list[str], str | None]:
    """The secrets of a scheme, and the one among them that was made here. Raises: Invalid."""
    scheme = find_scheme(verify)
    if len(given) > MAX_SECRETS:
        raise Invalid(f"{len(given)} secrets: at most {MAX_SECRETS} are allowed")
    try:
        for secret in given:
            scheme.check_secret(secret)
        if given or not scheme.needs_secret:
            return list(given), None
        made = scheme.generate_secret(randomness.token_bytes(32))
    except ValueError as problem:
        raise Invalid(str(problem)) from problem
    return [made], made


def _store_secrets(connection: sa.Connection, vault: Vault | None, identity: int, secrets: Sequence[str]) -> None:
    if not secrets:
        return
    if vault is None:
        raise Conflict("a secret cannot be stored without HOOKYARD_MASTER_KEY")
    for secret in reversed(secrets):  # the newest gets the highest id
        row = {"partner_id": identity, "sealed": vault.seal_text(secret, PARTNER_SECRET)}
        connection.execute(partner_secrets.insert().values(**row))


def _told(options: Options) -> dict[str, Any]:
    """The options as people write them."""
    told: dict[str, Any] = {name: value for name, value in options.items() if name != "verify_options"}
    told |= {f"verify_{name}": text for name, text in options.get("verify_options", {}).items()}
    if "rate" in options:
        told["rate"] = "none" if options["rate"] is None else format_rate(options["rate"])
    return told
