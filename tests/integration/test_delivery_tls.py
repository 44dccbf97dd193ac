"""TLS: always verified, by the destination's name, and told when it fails."""

import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
import trustme

from delivery.client import Client
from delivery.dial import trusting
from delivery.exchange import Exchange, Outcome, Outgoing
from delivery.resolve import Resolver
from domain.addresses import networks
from tests.bad_destinations import answering, close, hang, saying, serving

LOOPBACK = networks("127.0.0.0/8,::1/128")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def client(authority: trustme.CA) -> AsyncIterator[Client]:
    names = Resolver(lambda host: ["127.0.0.1"])
    sender = Client(LOOPBACK, names, trusting(authority.cert_pem.bytes().decode()))
    yield sender
    await sender.close()


def certified(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


async def send(client: Client, url: str, timeout: float = 2.0) -> Exchange:
    return await client.send(Outgoing(url, [], b"{}", timeout))


@pytest.mark.parametrize(("names", "host"), [(["warehouse.example"], "warehouse.example"), (["127.0.0.1"], "127.0.0.1"),
                                             (["warehouse.example"], "warehouse.example.")])  # fmt: skip
async def test_a_certificate_of_the_destinations_name_is_trusted(
    client: Client, authority: trustme.CA, names: list[str], host: str
) -> None:
    async with serving(answering(200), tls=certified(authority.issue_cert(*names))) as place:
        for _ in range(3):
            exchange = await send(client, place.url(host=host, scheme="https"))
            assert (exchange.outcome, exchange.snippet) == (Outcome.SUCCESS, b"ok")
    assert place.connections == 1


async def test_a_certificate_of_another_name_is_refused(client: Client, authority: trustme.CA) -> None:
    async with serving(answering(200), tls=certified(authority.issue_cert("other.example"))) as place:
        exchange = await send(client, place.url(host="warehouse.example", scheme="https"))
    assert exchange.outcome is Outcome.TLS_ERROR
    assert exchange.error
    assert "certificate" in exchange.error.lower()
    assert place.requests == []


async def test_an_expired_certificate_is_refused(client: Client, authority: trustme.CA) -> None:
    old = authority.issue_cert("warehouse.example", not_after=datetime(2020, 1, 1, tzinfo=UTC))
    async with serving(answering(200), tls=certified(old)) as place:
        exchange = await send(client, place.url(host="warehouse.example", scheme="https"))
    assert exchange.outcome is Outcome.TLS_ERROR
    assert exchange.error == "TLS: the certificate was refused: certificate has expired"
    assert place.requests == []


async def test_a_certificate_of_nobody_we_trust_is_refused(client: Client) -> None:
    async with serving(answering(200), tls=certified(trustme.CA().issue_cert("warehouse.example"))) as place:
        exchange = await send(client, place.url(host="warehouse.example", scheme="https"))
    assert exchange.outcome is Outcome.TLS_ERROR
    assert exchange.error
    assert exchange.error.startswith("TLS: the certificate was refused")
    assert place.requests == []


@pytest.mark.parametrize(
    "behaviour", [saying(b"HTTP/1.1 400 Bad\r\n\r\n", close=True), close], ids=["plain", "closing"]
)
async def test_a_port_without_tls_is_told(client: Client, behaviour) -> None:  # type: ignore[no-untyped-def]
    import asyncio

    async def at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        await behaviour(None, reader, writer)
        writer.close()

    server = await asyncio.start_server(at_once, "127.0.0.1", 0)
    url = f"https://warehouse.example:{server.sockets[0].getsockname()[1]}/"
    exchange = await send(client, url)
    server.close()
    assert exchange.outcome is Outcome.TLS_ERROR
    assert exchange.error
    assert exchange.error.startswith("TLS")


async def test_a_handshake_that_never_ends_is_a_timeout_that_names_tls(client: Client) -> None:
    async with serving(hang) as place:
        exchange = await send(client, place.url(host="warehouse.example", scheme="https"), timeout=0.3)
    assert (exchange.outcome, exchange.error) == (Outcome.TIMEOUT, "no TLS connection in time")


async def test_plain_http_to_a_tls_port_is_no_success(client: Client, authority: trustme.CA) -> None:
    async with serving(answering(200), tls=certified(authority.issue_cert("warehouse.example"))) as place:
        exchange = await send(client, place.url(host="warehouse.example"))
    assert exchange.outcome in (Outcome.CONNECT_ERROR, Outcome.PROTOCOL_ERROR)


async def test_verification_is_on_without_being_asked_for() -> None:
    context = trusting()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
