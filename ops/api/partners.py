"""Partners over the API."""

from typing import Any

import sqlalchemy as sa
from fastapi import APIRouter
from starlette.responses import Response

from ops.api.means import LIMIT, Admin, Cursor, Limit, Operator, UseMeans, cut, key_of, page
from ops.api.shapes import (
    Accepted,
    EventNew,
    Page,
    Partner,
    PartnerMade,
    PartnerNew,
    PartnerOptions,
    PartnerShown,
    Removed,
    Rotated,
    Rotation,
    Standing,
)
from ops.api.versions import IfMatch, require_match, tag
from ops.asking import in_daemon_thread
from ops.cli.options import OVERLAP
from ops.cli.partner import document, shown
from ops.cli.send import Ready, drafted, post_as
from storage import audit, partners
from storage.errors import Invalid

router = APIRouter(tags=["partners"])


@router.get("/partners", response_model=Page[Partner])
async def list_partners(means: UseMeans, limit: Limit = LIMIT, cursor: Cursor = None) -> Any:
    """List the partners, by name."""
    (after,) = key_of(cursor, str) or ("",)
    found = await means.desk.run(lambda connection: partners.listed(connection, after=after, limit=limit + 1))
    items, following = cut(found, limit, lambda partner: (partner.name,))
    return page([document(partner) for partner in items], following)


@router.post("/partners", response_model=PartnerMade, status_code=201, response_model_exclude_unset=True)
async def add_partner(means: UseMeans, who: Admin, new: PartnerNew, response: Response) -> Any:
    """Add a partner: it may POST to `/in/NAME` from now on."""
    if "verify" not in new and not means.settings.ingest_bind.is_loopback:
        raise Invalid("verify: ingest listens beyond this machine: say `none` if anybody who can reach it may post")
    name, options, secrets = _asked(new)

    def add(connection: sa.Connection) -> tuple[partners.Partner, str | None]:
        return partners.add(connection, means.vault_if_known, name, options, secrets, actor=who.name)

    added, made = await means.desk.run(add)
    response.headers["etag"] = tag(document(added))
    return document(added) | ({"secret": made} if made else {})


@router.get("/partners/{name}", response_model=PartnerShown)
async def show_partner(means: UseMeans, name: str, response: Response) -> Any:
    """Show a partner: its settings and its subscriptions. `ETag` names what an edit may ask for by `If-Match`."""
    found = await means.desk.run(lambda connection: shown(connection, name))
    response.headers["etag"] = tag(found)
    return found


@router.patch("/partners/{name}", response_model=PartnerMade, response_model_exclude_unset=True)
async def edit_partner(
    means: UseMeans, who: Admin, name: str, change: PartnerOptions, response: Response, if_match: IfMatch = None
) -> Any:
    """Change what is given, nothing else; effective within 2 s. Secrets go with another `verify` only."""
    _, options, secrets = _asked(change)

    def edit(connection: sa.Connection) -> tuple[partners.Partner, str | None]:
        require_match(if_match, document(partners.find(connection, name, lock=True)))
        return partners.edit(connection, means.vault_if_known, name, options, secrets, actor=who.name)

    changed, made = await means.desk.run(edit)
    response.headers["etag"] = tag(document(changed))
    return document(changed) | ({"secret": made} if made else {})


@router.delete("/partners/{name}", response_model=Removed)
async def remove_partner(means: UseMeans, who: Admin, name: str, even_if_waiting: bool = False) -> Any:
    """Accept nothing more; its events are kept. Refused where something waits, unless that is said: it is delivered."""

    def remove(connection: sa.Connection) -> int:
        return partners.remove(connection, name, even_if_waiting=even_if_waiting, actor=who.name).total

    return {"name": name, "waiting": await means.desk.run(remove)}


@router.post("/partners/{name}/pause", response_model=Standing)
async def pause_partner(means: UseMeans, who: Operator, name: str) -> Any:
    """Hold its deliveries; events are still accepted, up to the backlog's limit."""
    return await _set_state(means, who, name, "paused")


@router.post("/partners/{name}/resume", response_model=Standing)
async def resume_partner(means: UseMeans, who: Operator, name: str) -> Any:
    """Deliver its events again."""
    return await _set_state(means, who, name, "active")


@router.post("/partners/{name}/rotate-secret", response_model=Rotated)
async def rotate_partner_secret(means: UseMeans, who: Admin, name: str, rotation: Rotation) -> Any:
    """Accept a new secret from now on; the old ones too, until the overlap has passed."""
    vault, span = means.vault, OVERLAP if rotation.overlap is None else rotation.overlap

    def rotate(connection: sa.Connection) -> str | None:
        return partners.rotate_secret(connection, vault, name, rotation.secret, span, actor=who.name)

    return {"name": name, "secret": await means.desk.run(rotate)}


@router.post("/partners/{name}/send", response_model=Accepted)
async def send_event(means: UseMeans, who: Operator, name: str, event: EventNew) -> Any:
    """Sign and post one event as the partner would; a sample without a body."""
    body = None if event.body is None else event.body.encode()
    vault = means.vault_if_known

    def draft(connection: sa.Connection) -> Ready:
        audit.record(connection, who.name, "send", name)
        return drafted(connection, vault, name, body, event.type, event.id)

    ready = await means.desk.run(draft)
    return await in_daemon_thread(lambda: post_as(means.settings.ingest_bind, name, ready))


async def _set_state(means: UseMeans, who: Operator, name: str, state: str) -> dict[str, Any]:
    changed = await means.desk.run(lambda connection: partners.set_state(connection, name, state, actor=who.name))
    return {"name": name, "state": state, "changed": changed}


def _asked(given: PartnerOptions | PartnerNew) -> tuple[str, partners.Options, list[str]]:
    """The name, the options and the secrets that were sent."""
    told: dict[str, Any] = dict(given)
    name, secrets = told.pop("name", ""), told.pop("secrets", [])
    return name, partners.Options(**told), secrets  # type: ignore[typeddict-item]
