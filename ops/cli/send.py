"""`hookyard send`: one event, signed and posted as the partner would."""

import json as codec
import mimetypes
import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from domain.sources import parse_source
from domain.verification import Draft, find_scheme
from ops.cli.options import Json, PartnerName, wrong
from ops.cli.output import print_json
from ops.cli.session import session

if TYPE_CHECKING:
    import sqlalchemy as sa

    from ops.settings import Bind
    from storage.partners import Partner
    from storage.secrets import Vault

app = typer.Typer()

ANSWER_SECONDS = 30.0
SAMPLE_TYPE = "test.event"
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # where a server that listens everywhere is reached from here


class NotAccepted(Exception):
    """Ingest did not answer 202, or not at all; the message says what it did."""


@app.command("send", short_help="Post one event as the partner would.")
def send(
    partner: PartnerName,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE|-", help="The body; - for stdin. A fixed sample if not given.")
    ] = None,
    type_: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="The event's type.")] = None,
    identity: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Its id; the same again is a duplicate (default: random).")
    ] = None,
    json: Json = False,
) -> None:
    """Sign and post one event as the partner would, to ingest of these settings."""
    body, content_type = (None, None) if file is None else _read(file)
    with session() as now, now.store.begin() as connection:
        ready = drafted(connection, now.vault_if_known, partner, body, type_, identity, content_type)
        bind = now.settings.ingest_bind
    answer = post_as(bind, partner, ready)
    if json:
        print_json(answer)
        return
    repeat = " (a duplicate: it was accepted before)" if answer.get("duplicate") else ""
    print(f"accepted {answer.get('event')} as sequence {answer.get('sequence')}{repeat}")


@dataclass(frozen=True, slots=True)
class Ready:
    """An event, signed: what the partner would post now."""

    body: bytes
    headers: list[tuple[str, str]]


def drafted(
    connection: "sa.Connection",
    vault: "Vault | None",
    partner: str,
    body: bytes | None,
    type_: str | None,
    identity: str | None,
    content_type: str | None = None,
) -> Ready:
    """The event as the partner would post it; a sample without a body. Raises: NotFound, Conflict, BadParameter."""
    from storage import partners

    for option, text in (("--type", type_), ("--id", identity)):
        if text is not None and (not text.strip() or not text.isprintable()):
            raise wrong("printable text is allowed, not nothing", option)
    sender = partners.find(connection, partner)
    _check_places(sender, type_, identity, is_sample=body is None)
    secret = ""
    if sender.verify != "none":
        if vault is None:
            from ops.settings import WrongSetting

            raise WrongSetting("HOOKYARD_MASTER_KEY is not set: secrets cannot be read without it")
        secret = partners.newest_secret(connection, vault, sender) or ""
    chosen = identity or f"msg_{secrets.token_hex(12)}"
    if body is None:
        body = _sample(sender, type_ or SAMPLE_TYPE, chosen)
    kind = content_type or ("application/json" if _is_json(body) else "application/octet-stream")
    return Ready(body, [("content-type", kind), *_signed(sender, secret, body, chosen, type_)])


def post_as(bind: "Bind", partner: str, ready: Ready) -> dict[str, Any]:
    """What ingest answers, as 202. Raises: NotAccepted."""
    return _post(_base(bind), f"/in/{partner}", ready.body, ready.headers)


def _check_places(partner: "Partner", type_: str | None, identity: str | None, *, is_sample: bool) -> None:
    """Returns if what was given has its place: a header, or the sample. Raises: BadParameter."""
    for option, text, source in (("--type", type_, partner.type), ("--id", identity, partner.dedupe)):
        if text is None or source.startswith("header:") or (is_sample and parse_source(source).path):
            continue
        if option == "--id" and find_scheme(partner.verify).signs_identity:  # whatever dedupes
            continue
        where = "from nowhere" if source == "none" else f"from the body ({source}), which is sent as it is"
        raise wrong(f"cannot be applied: partner {partner.name} takes it {where}", option)


def _sample(partner: "Partner", type_: str, identity: str) -> bytes:
    """A body with type and id where the partner's sources look for them. The same id again: the same bytes."""
    sample: dict[str, Any] = {"type": type_, "id": identity, "hello": "world"}
    for source, text in ((partner.type, type_), (partner.dedupe, identity)):
        place, path = sample, parse_source(source).path
        for token in path[:-1]:
            if not isinstance(place.get(token), dict):
                place[token] = {}
            place = place[token]
        if path:
            place[path[-1]] = text
    return codec.dumps(sample).encode()


def _read(file: str) -> tuple[bytes, str | None]:
    """The bytes to send, and their content type where the file's name tells it."""
    if file == "-":
        return sys.stdin.buffer.read(), None
    try:
        body = Path(file).read_bytes()
    except OSError as problem:
        raise wrong(f"{file} cannot be read: {problem.strerror}") from problem
    return body, mimetypes.guess_type(file)[0]


def _is_json(body: bytes) -> bool:
    try:
        codec.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


def _signed(partner: "Partner", secret: str, body: bytes, identity: str, type_: str | None) -> list[tuple[str, str]]:
    """The headers the partner would send: its proof, and id and type where it says them in headers."""
    from storage.errors import Conflict

    try:
        draft = Draft(body, secret, partner.verify_options, time.time(), identity, type_)
        headers = find_scheme(partner.verify).sign(draft)
    except ValueError as problem:
        raise Conflict(str(problem)) from problem
    for source, value in ((partner.dedupe, identity), (partner.type, type_)):
        kind, _, name = source.partition(":")
        if kind == "header" and value is not None and not _has(headers, name):
            headers.append((name, value))
    return headers


def _has(headers: Sequence[tuple[str, str]], name: str) -> bool:
    return any(key.lower() == name.lower() for key, _ in headers)


def _base(bind: "Bind") -> str:
    host = ANYWHERE.get(bind.host, bind.host)
    return f"http://[{host}]:{bind.port}" if ":" in host else f"http://{host}:{bind.port}"


def _post(base: str, path: str, body: bytes, headers: list[tuple[str, str]]) -> dict[str, Any]:
    """The document of the 202. Raises: NotAccepted."""
    import httpx

    try:
        with httpx.Client(trust_env=False, timeout=ANSWER_SECONDS) as client:
            encoded = [(name.encode(), value.encode()) for name, value in headers]
            answer = client.post(base + path, content=body, headers=encoded)
    except httpx.HTTPError as problem:
        raise NotAccepted(f"ingest at {base} does not answer: {str(problem) or type(problem).__name__}") from problem
    try:
        document = answer.json()
    except ValueError:
        document = {}
    if answer.status_code != 202:
        reason = document.get("detail") or document.get("title") or answer.reason_phrase
        raise NotAccepted(f"not accepted: {answer.status_code} {reason}")
    return dict(document)
