"""Who may come in at the ops port, as whom, and how far: tokens, sessions, CSRF, roles."""

from __future__ import annotations

from datetime import timedelta

import httpx
import pytest

from ops.access import COOKIE
from ops.login import FREE, LONGEST_WAIT_SECONDS, Throttle, local_path, whence
from storage import sessions, tokens
from storage.errors import Conflict, Invalid, NotFound
from tests.by_hand import Hand
from tests.office import ADMIN, TOKEN, Office, running

PAGE = {"accept": "text/html"}


async def log_in(client: httpx.AsyncClient, token: str = TOKEN, **fields: str) -> httpx.Response:
    return await client.post("/login", data={"token": token} | fields)


def holding(cookie: str) -> dict[str, str]:
    return {"cookie": f"{COOKIE}={cookie}"}


async def csrf(client: httpx.AsyncClient) -> dict[str, str]:
    return {"x-csrf-token": (await client.get("/api/v1/me")).json()["csrf"]}


# --- tokens -------------------------------------------------------------------------------------------


def test_a_token_lets_in_until_it_is_revoked_or_expires(hand: Hand) -> None:
    with hand.store.begin() as connection:
        _, text = tokens.add(connection, "ada", "operator", actor="tester")
        _, brief = tokens.add(connection, "guest", "viewer", timedelta(hours=1), actor="tester")
        assert tokens.holder(connection, text) == tokens.Holder(1, "ada", "operator")
        assert tokens.holder(connection, brief) is not None
        assert tokens.holder(connection, text[:-1]) is None

    hand.sql("UPDATE tokens SET expires_at = now() WHERE name = 'guest'")
    with hand.store.begin() as connection:
        tokens.revoke(connection, "ada", actor="tester")
        assert tokens.holder(connection, text) is None
        assert tokens.holder(connection, brief) is None
        assert [(token.name, token.expired) for token in tokens.listed(connection)] == [("guest", True)]


def test_a_token_is_nowhere_in_the_database(hand: Hand) -> None:
    with hand.store.begin() as connection:
        _, text = tokens.add(connection, "ada", "operator", actor="tester")

    kept = hand.rows("SELECT t::text || a::text FROM tokens t, audit a")
    assert all(text not in row[0] for row in kept)
    assert hand.audit() == [("token add", "ada")]


@pytest.mark.parametrize(
    ("name", "role", "expires"),
    [
        ("admin", "viewer", None),
        ("hookyard", "viewer", None),
        ("Ada", "viewer", None),
        ("ada", "root", None),
        ("ada", "viewer", timedelta(0)),
        ("ada", "viewer", timedelta.max),
    ],
)
def test_a_token_that_makes_no_sense_is_refused(hand: Hand, name: str, role: str, expires: timedelta | None) -> None:
    with pytest.raises(Invalid), hand.store.begin() as connection:
        tokens.add(connection, name, role, expires, actor="tester")


def test_a_name_has_one_token(hand: Hand) -> None:
    with hand.store.begin() as connection:
        tokens.add(connection, "ada", "viewer", actor="tester")
        with pytest.raises(Conflict):
            tokens.add(connection, "ada", "viewer", actor="tester")
        with pytest.raises(NotFound):
            tokens.revoke(connection, "bob", actor="tester")


# --- browsers -----------------------------------------------------------------------------------------


async def test_a_browser_logs_in_works_and_logs_out(database_url: str, hand: Hand) -> None:
    async with running(database_url) as client:
        sent_away = await client.get("/parked?partner=shop", headers=PAGE)
        assert (sent_away.status_code, sent_away.headers["location"]) == (303, "/login?next=/parked%3Fpartner%3Dshop")

        entered = await log_in(client, next="/parked?partner=shop")
        assert (entered.status_code, entered.headers["location"]) == (303, "/parked?partner=shop")
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(entered.headers["set-cookie"].split("; "))
        assert (await client.get("/api/v1/me")).json()["name"] == "admin"

        cookie = client.cookies[COOKIE]
        assert (await client.post("/logout")).status_code == 403
        assert (await client.post("/logout", headers=await csrf(client))).status_code == 303
        assert (await client.get("/api/v1/me", headers=holding(cookie))).status_code == 401
    assert cookie not in str(hand.rows("SELECT s::text FROM sessions s"))


async def test_a_session_ends_with_its_token(database_url: str, hand: Hand) -> None:
    async with running(database_url) as client:
        bearer = Office(client, hand).bearer("operator", "ada")["authorization"]
        await log_in(client, bearer.removeprefix("Bearer "))
        assert (await client.get("/api/v1/me")).json()["role"] == "operator"

        assert (await httpx_admin_delete(client, "/api/v1/tokens/ada")).status_code == 204

        assert (await client.get("/api/v1/me")).status_code == 401


async def httpx_admin_delete(client: httpx.AsyncClient, path: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=client.base_url) as another:
        return await another.delete(path, headers=ADMIN)


async def test_another_admin_token_in_the_settings_ends_the_sessions_of_the_old_one(
    database_url: str, hand: Hand
) -> None:
    async with running(database_url) as client:
        await log_in(client)
        cookie = client.cookies[COOKIE]
    async with running(database_url, admin_token="another-token") as client:
        assert (await client.get("/api/v1/me", headers=holding(cookie))).status_code == 401
    async with running(database_url) as client:
        assert (await client.get("/api/v1/me", headers=holding(cookie))).status_code == 200


def test_a_session_ends_by_its_age_and_is_swept_away(hand: Hand) -> None:
    with hand.store.begin() as connection:
        value = sessions.open_(connection, sessions.OF_SETTINGS, TOKEN)
        assert sessions.find(connection, value, TOKEN) == sessions.OF_SETTINGS
    hand.sql("UPDATE sessions SET expires_at = now() - interval '1 s'")
    with hand.store.begin() as connection:
        assert sessions.find(connection, value, TOKEN) is None
        assert sessions.purge(connection) == 1


async def test_a_session_changes_nothing_without_its_csrf_token(database_url: str, hand: Hand) -> None:
    new = {"name": "ada", "role": "viewer"}
    async with running(database_url) as client:
        await log_in(client)
        mine = await csrf(client)
        refused = [
            await client.post("/api/v1/tokens", json=new),
            await client.post("/api/v1/tokens", json=new, headers={"x-csrf-token": "x" * 64}),
            await client.post("/api/v1/tokens", json=new, headers=mine | {"sec-fetch-site": "cross-site"}),
            await client.post("/logout", data={"csrf": "x"}),
        ]
        assert {answer.status_code for answer in refused} == {403}
        assert (await client.post("/api/v1/tokens", json=new, headers=mine)).status_code == 201
        assert (await client.post("/logout", data={"csrf": mine["x-csrf-token"]})).status_code == 303


async def test_guessing_is_slowed_down_and_tells_nothing(database_url: str) -> None:
    async with running(database_url) as client:
        wrong = [await log_in(client, f"wrong-{n}") for n in range(FREE + 1)]
        late = await log_in(client)

    assert [answer.status_code for answer in wrong] == [401] * FREE + [429]
    assert late.status_code == 429
    assert int(late.headers["retry-after"]) > 0
    assert "set-cookie" not in late.headers


def test_each_wrong_token_doubles_the_wait_of_its_address_alone() -> None:
    throttle, now, waits = Throttle(), 1000.0, []
    for _ in range(FREE + 12):
        while wait := throttle.guess("198.51.100.7", now):
            waits.append(wait)
            now += wait

    assert waits[:4] == [2, 4, 8, 16]
    assert max(waits) == LONGEST_WAIT_SECONDS
    assert throttle.guess("198.51.100.8", now) == 0


def test_who_has_an_ipv6_network_has_one_guess_for_all_of_it() -> None:
    assert whence("2001:db8::1") == whence("2001:db8:0:0:ffff::2") != whence("2001:db8:0:1::1")
    assert whence("198.51.100.7") != whence("198.51.100.8")


async def test_a_form_of_a_thousand_fields_is_no_form(database_url: str) -> None:
    async with running(database_url) as client:
        for body in ("&a" * 30_000, "a" * 100_000):
            answer = await client.post("/login", content=body)
            assert answer.status_code == 401


async def test_a_token_of_other_letters_lets_in_too(database_url: str) -> None:
    async with running(database_url, admin_token="schlüssel-für-alle") as client:
        bearer = "Bearer schlüssel-für-alle".encode()
        assert (await client.get("/api/v1/me", headers={b"authorization": bearer})).status_code == 200
        assert (await log_in(client, "schlüssel-für-alle")).status_code == 303


@pytest.mark.parametrize(
    "wanted", ["//evil.example", "/\\evil.example", "https://evil.example/", "javascript:alert(1)", "", "/a\nb", "x"]
)
def test_logging_in_leads_to_our_own_pages_only(wanted: str) -> None:
    assert local_path(wanted) == "/"


# --- every answer -------------------------------------------------------------------------------------


async def test_every_answer_forbids_what_it_does_not_need(database_url: str) -> None:
    async with running(database_url) as client:
        answers = [
            await client.get(path, headers=headers)
            for path in ("/", "/login", "/api/v1/me", "/nowhere", "/health/live", "/metrics", "/api/v1/nowhere")
            for headers in ({}, ADMIN)
        ]

    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


async def test_roles_may_do_what_is_theirs(database_url: str, hand: Hand) -> None:
    async with running(database_url) as client:
        office = Office(client, hand)
        viewer, operator = office.bearer("viewer"), office.bearer("operator")
        for headers, path, status in (
            (viewer, "/api/v1/partners", 200),
            (viewer, "/api/v1/tokens", 403),
            (operator, "/api/v1/tokens", 403),
            (ADMIN, "/api/v1/tokens", 200),
        ):
            assert (await client.get(path, headers=headers)).status_code == status, path
