"""One request to destinations of every kind, good and bad: what came of it, and that it cost nobody else anything."""

import asyncio
import contextlib
import gzip
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest
import uvloop

from delivery.client import Client
from delivery.exchange import SNIPPET_BYTES, Exchange, Outcome, Outgoing
from delivery.resolve import Resolver
from domain.addresses import networks
from domain.headers import Header
from tests.bad_destinations import (
    Behaviour,
    Place,
    answer_then_close_unseen,
    answering,
    close,
    dripping,
    flooding,
    hang,
    in_turn,
    reset,
    saying,
    serving,
)  # fmt: skip

LOOPBACK = networks("127.0.0.0/8,::1/128")
HEADERS: list[Header] = [(b"content-type", b"application/json"), (b"x-dup", b"1"), (b"x-dup", b"2")]


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    sender = Client(LOOPBACK)
    yield sender
    await sender.close()


def a_request(url: str, *, timeout: float = 2.0, body: bytes = b"{}", headers: Sequence[Header] = HEADERS) -> Outgoing:
    return Outgoing(url, headers, body, timeout)


async def told_by(client: Client, behaviour: Behaviour, *, timeout: float = 2.0) -> Exchange:
    async with serving(behaviour) as place:
        return await client.send(a_request(place.url(), timeout=timeout))


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < seconds


# --- what is sent ----------------------------------------------------------------------------------------------------


async def test_exactly_what_was_asked_for_is_sent(client: Client) -> None:
    async with serving(answering(200)) as place:
        exchange = await client.send(a_request(place.url("/a/%2F;~b?x=%zz&y=[1]"), body=b"\0\xff\r\n"))
    assert exchange.outcome is Outcome.SUCCESS
    assert place.requests == [
        b"POST /a/%%2F;~b?x=%%zz&y=[1] HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n"
        b"content-type: application/json\r\nx-dup: 1\r\nx-dup: 2\r\ncontent-length: 4\r\n\r\n" % place.port
    ]
    assert place.bodies == [b"\0\xff\r\n"]


async def test_a_large_body_arrives_whole(client: Client) -> None:
    body = bytes(range(256)) * 40_000
    async with serving(answering(200)) as place:
        assert (await client.send(a_request(place.url(), body=body))).outcome is Outcome.SUCCESS
    assert place.bodies == [body]


async def test_one_connection_serves_many_requests(client: Client) -> None:
    async with serving(answering(200)) as place:
        for _ in range(20):
            await client.send(a_request(place.url()))
        assert (place.connections, client.idle_connections) == (1, 1)


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"])
async def test_a_proxy_of_the_environment_is_ignored(
    client: Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(answering(502)) as proxy, serving(answering(200)) as place:
        monkeypatch.setenv(name, proxy.url("/"))
        assert (await client.send(a_request(place.url()))).outcome is Outcome.SUCCESS
    assert proxy.connections == 0


async def test_cookies_are_never_sent_back(client: Client) -> None:
    async with serving(answering(200, b"", b"set-cookie: track=1; Path=/")) as place:
        await client.send(a_request(place.url()))
        await client.send(a_request(place.url()))
    assert b"cookie" not in place.requests[1].lower()


@pytest.mark.parametrize(
    "header", [(b"x", b"a\r\nevil: 1"), (b"x", b"a\n"), (b"x\r\n", b"a"), (b"x", b"\0"), (b"x", b"\r")]
)
async def test_a_header_that_would_break_the_framing_is_never_written(client: Client, header: Header) -> None:
    async with serving(answering(200)) as place:
        exchange = await client.send(a_request(place.url(), headers=[header]))
    assert exchange.outcome is Outcome.UNDELIVERABLE
    assert place.connections == 0


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1", "http://h:99999/", "http://xn--a/", "http://exa\nmple/", "ftp://h/", "//h/x", "http://☃.test/",
        "http://H/", "http://h:0/",
    ],
)  # fmt: skip
async def test_a_url_that_cannot_be_called_is_undeliverable(client: Client, url: str) -> None:
    exchange = await client.send(a_request(url))
    assert exchange.outcome is Outcome.UNDELIVERABLE
    assert exchange.error == "the URL is malformed"


async def test_a_request_that_is_too_late_is_withdrawn_before_its_first_byte(client: Client) -> None:
    async with serving(answering(200)) as place:
        request = Outgoing(place.url(), HEADERS, b"", 2.0, may_start=lambda: False)
        assert (await client.send(request)).outcome is Outcome.WITHDRAWN
        assert (await client.send(a_request(place.url()))).outcome is Outcome.SUCCESS
    assert len(place.requests) == 1


# --- statuses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202, 204, 205, 206, 226, 299])
async def test_any_2xx_is_a_success(client: Client, status: int) -> None:
    exchange = await told_by(client, answering(status, b""))
    assert (exchange.outcome, exchange.status, exchange.error) == (Outcome.SUCCESS, status, None)


@pytest.mark.parametrize("status", [400, 404, 410, 429, 500, 503, 599, 600, 999])
async def test_any_other_status_is_a_failure_that_is_told(client: Client, status: int) -> None:
    exchange = await told_by(client, answering(status, b"no\x00\xff", b"retry-after: 7"))
    assert (exchange.outcome, exchange.status, exchange.error) == (Outcome.HTTP_ERROR, status, f"HTTP {status}")
    assert (exchange.retry_after, exchange.snippet) == (("7",), b"no\x00\xff")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(client: Client, status: int) -> None:
    async with serving(answering(200)) as trap:
        exchange = await told_by(client, answering(status, b"", b"location: %s" % trap.url("/x?tok=Q").encode()))
    assert (exchange.outcome, exchange.status) == (Outcome.REDIRECT, status)
    assert exchange.error == f"HTTP {status} to http://127.0.0.1:{trap.port}/…"
    assert trap.connections == 0


async def test_a_redirect_to_nowhere_is_told(client: Client) -> None:
    exchange = await told_by(client, answering(302, b""))
    assert (exchange.outcome, exchange.error) == (Outcome.REDIRECT, "HTTP 302")


async def test_odd_bytes_in_headers_change_nothing(client: Client) -> None:
    exchange = await told_by(
        client, answering(500, b"", b"x-odd: \xe9\xff", b"location: \x01\x7f", b"retry-after: \xe9")
    )
    assert (exchange.outcome, exchange.status, exchange.retry_after) == (Outcome.HTTP_ERROR, 500, ("é",))
    assert exchange.location == "…"


async def test_a_protocol_upgrade_is_no_success(client: Client) -> None:
    exchange = await told_by(client, saying(b"HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\n"))
    assert (exchange.outcome, exchange.status) == (Outcome.HTTP_ERROR, 101)


# --- bodies: the status decides --------------------------------------------------------------------------------------

OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"content-length: 10\r\n\r\nabc",  # truncated
        OK + b"transfer-encoding: chunked\r\n\r\nZZZ\r\nabc\r\n",  # bad chunk
        OK + b"transfer-encoding: chunked\r\n\r\n3\r\nabcXX",
        OK + b"content-encoding: gzip\r\ncontent-length: 9\r\n\r\n\x1f\x8bnot gzip"[:-1],
        OK + b"content-length: nonsense\r\n\r\nabc",
        OK + b"content-length: 1\r\ncontent-length: 2\r\n\r\nabc",
        OK + b"\r\nuntil the end",
        b"HTTP/1.0 200 OK\r\n\r\nabc",
        OK + b"x: y\r\n" * 2000 + b"content-length: 0\r\n\r\n",
        OK + b"content-length: 6\r\n\r\n\x00\xff\xfe\xed\xa0\x80",
    ],
    ids=[
        "truncated", "bad chunk", "chunk overrun", "broken gzip", "bad length", "two lengths", "until close", "1.0",
        "many headers", "binary",
    ],
)  # fmt: skip
async def test_a_success_stands_whatever_its_body_is(client: Client, answer: bytes) -> None:
    with at_most(1.0):
        exchange = await told_by(client, saying(answer, close=True))
    assert (exchange.outcome, exchange.status) == (Outcome.SUCCESS, 200)


async def test_a_gzip_bomb_is_not_inflated(client: Client) -> None:
    bomb = gzip.compress(b"\0" * (20 << 20), 9)
    exchange = await told_by(client, answering(200, bomb, b"content-encoding: gzip"))
    assert exchange.outcome is Outcome.SUCCESS
    assert exchange.snippet == bomb[:SNIPPET_BYTES]


@pytest.mark.parametrize("status", [200, 500])
async def test_two_gigabytes_end_at_64_kib(client: Client, status: int) -> None:
    start = b"HTTP/1.1 %d x\r\ncontent-length: 2000000000\r\n\r\n" % status
    async with serving(flooding(start, b"z" * 65536, 2_000_000_000)) as place:
        with at_most(1.0):
            exchange = await client.send(a_request(place.url(), timeout=5))
        assert exchange.status == status
        await until(lambda: place.open == 0)
    assert place.sent < 32 << 20


@pytest.mark.parametrize("status", [200, 500])
async def test_a_dripping_body_holds_nobody_up(client: Client, status: int) -> None:
    async with serving(dripping(b"HTTP/1.1 %d x\r\ncontent-length: 1000\r\n\r\n" % status, b"x")) as place:
        with at_most(1.0):
            exchange = await client.send(a_request(place.url(), timeout=10))
        assert exchange.status == status
        await until(lambda: place.open == 0)


async def test_the_timeout_ends_a_dripping_body_that_comes_late(client: Client) -> None:
    async with serving(dripping(b"HTTP/1.1 200 x\r\ncontent-length: 1000\r\n\r\n", b"x")) as place:
        with at_most(0.4):
            exchange = await client.send(a_request(place.url(), timeout=0.15))
    assert exchange.outcome is Outcome.SUCCESS


async def test_a_204_with_a_body_poisons_nothing(client: Client) -> None:
    liar = saying(b"HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\nhello")
    async with serving(in_turn(liar, liar, answering(200), answering(500))) as place:
        statuses = [(await client.send(a_request(place.url()))).status for _ in range(4)]
    assert statuses == [204, 204, 200, 500]


async def test_bytes_nobody_asked_for_are_not_taken_for_an_answer(client: Client) -> None:
    async def chatty(place: Place, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.write(b"HTTP/1.1 500 Surprise\r\ncontent-length: 0\r\n\r\n")

    async with serving(chatty) as place:
        assert (await client.send(a_request(place.url()))).status == 200
        await until(lambda: place.open == 0)
        assert (await client.send(a_request(place.url()))).status == 200
    assert place.connections == 2


# --- no answer -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        (close, "closed before the answer"),
        (reset, "reset before the answer"),
        (saying(b"", close=True), "closed before the answer"),
    ],
    ids=["close", "reset", "nothing"],
)
async def test_a_connection_that_ends_without_an_answer_is_a_connection_error(
    client: Client, behaviour: Behaviour, error: str
) -> None:
    exchange = await told_by(client, behaviour)
    assert (exchange.outcome, exchange.error) == (Outcome.CONNECT_ERROR, error)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n", b"<html>hello</html>", b"HTTP/1.1 200 OK\r\nx-", b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 099 x\r\n\r\n", b"\x16\x03\x01\x02\x00",
        b"HTTP/1.1 200 OK\r\n" + b"x-a: " + b"a" * 100_000,
    ],
    ids=["ssh", "html", "half a head", "no status", "h2", "099", "tls", "huge head"],
)  # fmt: skip
async def test_what_is_not_http_is_a_protocol_error(client: Client, answer: bytes) -> None:
    exchange = await told_by(client, saying(answer, close=True))
    assert exchange.outcome is Outcome.PROTOCOL_ERROR
    assert exchange.error


async def half_a_status_line(place: Place, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 2")
    await hang(place, reader, writer)


@pytest.mark.parametrize(
    "behaviour",
    [
        hang,
        dripping(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"),
        dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        half_a_status_line,
    ],
    ids=["silence", "headers", "endless 100", "half a status line"],
)
async def test_silence_in_any_form_ends_at_the_timeout(client: Client, behaviour: Behaviour) -> None:
    async with serving(behaviour) as place:
        begun = time.monotonic()
        exchange = await client.send(a_request(place.url(), timeout=0.3))
        took = time.monotonic() - begun
        await until(lambda: place.open == 0)
    assert exchange.outcome is Outcome.TIMEOUT
    assert exchange.error == "no answer within 0.3 s"
    assert 0.29 < took < 0.6
    assert 290 <= exchange.duration_ms < 600


async def test_what_had_not_arrived_at_the_timeout_never_does(client: Client) -> None:
    """Or a network that comes back would bring a request that was given up long ago."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        sending = asyncio.create_task(client.send(a_request(url, timeout=0.3, body=bytes(32 << 20))))
        line, _ = await loop.sock_accept(server)
        with line:
            assert (await sending).outcome is Outcome.TIMEOUT
            with pytest.raises(ConnectionResetError):
                await _read_to_the_end(line)


async def _read_to_the_end(line: socket.socket) -> None:
    while await asyncio.get_running_loop().sock_recv(line, 1 << 20):
        pass


async def test_a_flood_of_interim_answers_is_cut_short(client: Client) -> None:
    async with serving(flooding(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, 1 << 30)) as place:
        with at_most(1.0):
            exchange = await client.send(a_request(place.url(), timeout=5))
    assert exchange.outcome is Outcome.PROTOCOL_ERROR


async def test_a_refused_connection_is_told_without_its_address(client: Client) -> None:
    async with serving(answering(200)) as place:
        url = place.url()
    exchange = await client.send(a_request(url))
    assert (exchange.outcome, exchange.error) == (Outcome.CONNECT_ERROR, "connection refused")


async def test_an_early_refusal_of_a_large_body_is_the_answer(client: Client) -> None:
    async def too_large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

        ended.set()

    ended = asyncio.Event()
    server = await asyncio.start_server(too_large, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    exchange = await client.send(a_request(url, body=b"x" * (16 << 20)))
    await asyncio.wait_for(ended.wait(), 5)
    server.close()
    assert (exchange.status, client.idle_connections) == (413, 0)


# --- connections -----------------------------------------------------------------------------------------------------


async def test_an_idle_connection_the_peer_closed_is_not_used_again(client: Client) -> None:
    async with serving(saying(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", close=True)) as place:
        for _ in range(5):
            assert (await client.send(a_request(place.url()))).outcome is Outcome.SUCCESS
            await until(lambda: place.open == 0)
    assert len(place.requests) == 5


async def test_a_connection_nobody_uses_is_closed_after_a_while(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delivery.client.IDLE_SECONDS", 0.05)
    async with serving(answering(200)) as place:
        await client.send(a_request(place.url()))
        await until(lambda: place.open == 0)
    assert client.idle_connections == 0


async def test_an_old_connection_is_not_kept_so_that_dns_is_followed(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delivery.client.CONNECTION_SECONDS", -1.0)
    async with serving(answering(200)) as place:
        await client.send(a_request(place.url()))
        await client.send(a_request(place.url()))
    assert (place.connections, client.idle_connections) == (2, 0)


async def test_a_request_on_its_way_when_the_peer_closes_goes_out_again_at_once(client: Client) -> None:
    """The race is held open: the peer's end of the connection is shut before the request reaches it."""
    async with serving(in_turn(answer_then_close_unseen, answering(200))) as place:
        assert (await client.send(a_request(place.url()))).outcome is Outcome.SUCCESS
        exchange = await client.send(a_request(place.url()))
    assert exchange.outcome is Outcome.SUCCESS
    assert len(place.requests) == 2  # seen once each: no duplicate


async def test_a_peer_that_read_the_request_and_hung_up_is_not_asked_again(client: Client) -> None:
    async with serving(in_turn(answering(200), close, answering(200))) as place:
        assert (await client.send(a_request(place.url()))).outcome is Outcome.SUCCESS
        exchange = await client.send(a_request(place.url()))
    assert exchange.outcome is Outcome.CONNECT_ERROR
    assert len(place.requests) == 2


async def test_a_cancelled_exchange_closes_its_connection_at_once(client: Client) -> None:
    async with serving(hang) as place:
        tasks = [asyncio.create_task(client.send(a_request(place.url(), timeout=30))) for _ in range(20)]
        await until(lambda: len(place.requests) == 20)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ended)
        await until(lambda: place.open == 0)
    assert client.idle_connections == 0


async def test_nothing_of_a_bad_day_is_left_behind(client: Client) -> None:
    """Descriptors and tasks are as before after failures of every kind, cancellations among them."""
    await told_by(client, close)  # the loop opens some of its own with the first
    before = open_files()
    async with serving(in_turn(close, reset, hang, saying(b"junk"), hang, dripping(OK, b"a: b\r\n"))) as place:
        for _ in range(5):
            await client.send(a_request(place.url(), timeout=0.05))
        task = asyncio.create_task(client.send(a_request(place.url("/", host="127.0.0.1", scheme="https"), timeout=5)))
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.send(a_request(place.url(scheme="https"), timeout=0.05))
    await client.close()
    await until(lambda: open_files() <= before)


async def test_many_at_once_share_nothing_but_the_client(client: Client) -> None:
    async def echo(place: Place, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer_with(place.bodies[-1]))

    def answer_with(body: bytes) -> bytes:
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)

    async with serving(echo) as place:
        sent = [client.send(a_request(place.url(), body=b"%d" % n)) for n in range(200)]
        told = await asyncio.gather(*sent)
    assert [exchange.snippet for exchange in told] == [b"%d" % n for n in range(200)]


# --- names and addresses ---------------------------------------------------------------------------------------------


class Names:
    """A resolver made up, and what it was asked."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "0.0.0.0", "[::1]", "[::ffff:7f00:1]", "[::7f00:1]", "[64:ff9b::7f00:1]", "localhost", "localhost."],
)  # fmt: skip
async def test_no_spelling_of_loopback_is_dialled_where_it_is_not_allowed(host: str) -> None:
    client = Client(resolver=Resolver(Names(["127.0.0.1"])))
    async with serving(answering(200)) as place:
        exchange = await client.send(a_request(place.url(host=host)))
    assert exchange.outcome is Outcome.BLOCKED
    assert exchange.error == "the host leads to an address that is not public and not allowed"
    assert place.connections == 0


@pytest.mark.parametrize(
    "answer", [["8.8.8.8", "10.0.0.1"], ["127.0.0.1", "169.254.169.254"], ["fd00:ec2::254", "127.0.0.1"]]
)
async def test_a_name_with_one_forbidden_address_is_not_called_at_all(answer: list[str]) -> None:
    client = Client(LOOPBACK, Resolver(Names(answer)))
    exchange = await client.send(a_request("http://mixed.example/", timeout=0.5))
    assert exchange.outcome is Outcome.BLOCKED
    assert not any(address in (exchange.error or "") for address in answer)


async def test_the_judged_address_is_dialled_and_the_name_is_kept() -> None:
    names = Names(["127.0.0.1"])
    client = Client(LOOPBACK, Resolver(names))
    async with serving(answering(200)) as place:
        assert (await client.send(a_request(place.url(host="warehouse.example")))).outcome is Outcome.SUCCESS
    assert b"\r\nhost: warehouse.example:%d\r\n" % place.port in place.requests[0]
    assert names.asked == ["warehouse.example"]
    await client.close()


async def test_a_name_that_changes_its_mind_after_it_was_judged_changes_nothing() -> None:
    """Rebinding: the answer that was judged is the one that is dialled; a later answer is judged anew."""
    resolver = Resolver(Names(["127.0.0.1"], ["169.254.169.254"]))
    client = Client(LOOPBACK, resolver)
    async with serving(saying(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")) as place:
        first = await client.send(a_request(place.url(host="rebind.example")))
        resolver._entries.clear()  # the answer has expired
        second = await client.send(a_request(place.url(host="rebind.example")))
    assert (first.outcome, second.outcome) == (Outcome.SUCCESS, Outcome.BLOCKED)
    assert place.connections == 1


async def test_a_dead_address_does_not_hide_a_living_one() -> None:
    client = Client(LOOPBACK, Resolver(Names(["127.0.0.2", "127.0.0.1"])))
    async with serving(answering(200)) as place:
        assert (await client.send(a_request(place.url(host="two.example")))).outcome is Outcome.SUCCESS
    await client.close()


async def test_a_name_that_leads_nowhere_is_told() -> None:
    def nowhere(host: str) -> Sequence[str]:
        raise OSError(-2, "Name or service not known")

    exchange = await Client(LOOPBACK, Resolver(nowhere)).send(a_request("http://nowhere.example/"))
    assert (exchange.outcome, exchange.error) == (Outcome.DNS_ERROR, "the name does not resolve")


async def test_a_resolver_that_hangs_ends_at_the_timeout_and_holds_up_no_other_name() -> None:
    released = time.monotonic() + 1.0

    def slow(host: str) -> Sequence[str]:
        while host == "slow.example" and time.monotonic() < released:
            time.sleep(0.02)
        return ["127.0.0.1"]

    client = Client(LOOPBACK, Resolver(slow))
    async with serving(answering(200)) as place:
        stuck = asyncio.create_task(client.send(a_request(place.url(host="slow.example"), timeout=0.3)))
        with at_most(0.3):
            other = await client.send(a_request(place.url(host="fast.example")))
        assert other.outcome is Outcome.SUCCESS
        assert (await stuck).outcome is Outcome.TIMEOUT
    await client.close()


async def test_a_name_is_looked_up_once_for_many_at_the_same_time() -> None:
    names = Names(["127.0.0.1"])
    client = Client(LOOPBACK, Resolver(names))
    async with serving(answering(200)) as place:
        await asyncio.gather(*[client.send(a_request(place.url(host="busy.example"))) for _ in range(50)])
    assert names.asked == ["busy.example"]
    await client.close()


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    "scenario",
    [
        test_one_connection_serves_many_requests,
        test_a_large_body_arrives_whole,
        test_an_early_refusal_of_a_large_body_is_the_answer,
        test_a_204_with_a_body_poisons_nothing,
        test_bytes_nobody_asked_for_are_not_taken_for_an_answer,
        test_an_idle_connection_the_peer_closed_is_not_used_again,
        test_a_request_on_its_way_when_the_peer_closes_goes_out_again_at_once,
        test_a_peer_that_read_the_request_and_hung_up_is_not_asked_again,
        test_a_cancelled_exchange_closes_its_connection_at_once,
        test_nothing_of_a_bad_day_is_left_behind,
        test_many_at_once_share_nothing_but_the_client,
    ],
)
def test_the_loop_of_the_workers_keeps_the_same_promises(scenario: Callable[[Client], Awaitable[None]]) -> None:
    async def run() -> None:
        assert type(asyncio.get_running_loop()).__module__.startswith("uvloop")
        sender = Client(LOOPBACK)
        try:
            await scenario(sender)
        finally:
            await sender.close()

    uvloop.run(run())
