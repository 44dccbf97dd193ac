"""Dispatch: the log goes on to its lanes in one step, to those who were subscribed (promises P4, P10, P16)."""

import asyncio

from storage import destinations, lanes, subscriptions
from storage.transactions import Store
from tests.owner import Elsewhere, Owner
from tests.pipeline import ACTOR, Pipeline

DELIVERIES = "SELECT seq, state::text, park_reason FROM deliveries ORDER BY seq"


def waiting(pipeline: Pipeline) -> list[tuple[object, ...]]:
    return pipeline.sql("SELECT waiting, head_seq, tail_seq FROM lanes")


# --- P4 --------------------------------------------------------------------------------------------------------------


async def test_deliveries_and_cursor_move_together_or_not_at_all(
    pipeline: Pipeline, owner: Owner, elsewhere: Elsewhere
) -> None:
    shop = pipeline.lane()
    await pipeline.post(shop, 3)
    dies = await elsewhere.transaction(
        "SELECT * FROM dispatch(%s, ARRAY[%s], ARRAY[true], 10, 1000)", owner.token, shop.id
    )
    assert pipeline.sql("SELECT cursor FROM partner_tails") == [(0,)]
    await dies.close()

    assert pipeline.sql(DELIVERIES) == []
    events = await owner.dispatch(shop.id)

    assert [event.sequence for event in events] == [1, 2, 3]
    assert pipeline.sql(DELIVERIES) == [(n, "queued", None) for n in (1, 2, 3)]
    assert pipeline.sql("SELECT cursor FROM partner_tails") == [(3,)]
    assert waiting(pipeline) == [(3, 1, 3)]


async def test_each_event_is_dispatched_once(pipeline: Pipeline, owner: Owner) -> None:
    shop = pipeline.lane()
    await pipeline.post(shop, 5)

    pages = [[event.sequence for event in await owner.dispatch(shop.id, limit=2)] for _ in range(4)]

    assert pages == [[1, 2], [3, 4], [5], []]
    assert pipeline.sql("SELECT count(*) FROM deliveries") == [(5,)]


async def test_an_event_names_the_one_before_it_in_each_lane(pipeline: Pipeline, owner: Owner) -> None:
    shop = pipeline.lane()
    pipeline.destination("orders")
    pipeline.subscribe(destination="orders", types=["order.*"], ordering="none")
    for kind in ("order.made", "user.made", "order.paid"):
        await pipeline.post(shop, type=kind)

    events = await owner.dispatch(shop.id)

    warehouse, orders = (row[0] for row in pipeline.sql("SELECT id FROM destinations ORDER BY id"))
    assert [event.lanes for event in events] == [
        ((warehouse, 0, 0), (orders, 0, None)),
        ((warehouse, 1, 0),),
        ((warehouse, 2, 0), (orders, 1, None)),
    ]


async def test_copies_come_along_only_where_they_are_wanted(pipeline: Pipeline, owner: Owner) -> None:
    shop, bank = pipeline.lane(), pipeline.partner("bank")
    pipeline.subscribe("bank")
    for partner in (shop, bank):
        await pipeline.post(partner, body=b"\x00\xff", type="t")

    wanted = {shop.id: True, bank.id: False}
    one, other = await lanes.dispatch(owner.connection, owner.token, wanted, 10)

    assert (one.copy, other.copy) == (lanes.Copy("t", b"content-type:application/json", b"\x00\xff"), None)


async def test_what_nobody_announced_is_found_by_asking(pipeline: Pipeline, owner: Owner) -> None:
    shop, bank = pipeline.lane(), pipeline.partner("bank")
    await pipeline.post(shop)
    await pipeline.post(bank)
    assert sorted(await lanes.undispatched(owner.connection, owner.token)) == [shop.id, bank.id]

    await owner.dispatch(shop.id, bank.id)

    assert await lanes.undispatched(owner.connection, owner.token) == []


# --- P16 -------------------------------------------------------------------------------------------------------------


async def test_who_subscribes_while_an_event_is_accepted_receives_what_comes_after_it(
    pipeline: Pipeline, owner: Owner, elsewhere: Elsewhere
) -> None:
    shop, store = pipeline.partner(), Store(pipeline.database_url, "late subscriber")
    pipeline.destination()
    gate = await elsewhere.commits_wait("partner_heads")
    first = asyncio.ensure_future(pipeline.post(shop))
    await elsewhere.until_blocked("hookyard ingest")

    def subscribe() -> int:
        with store.begin() as connection:
            return subscriptions.subscribe(connection, "shop", "warehouse", actor=ACTOR).from_seq

    subscribing = asyncio.create_task(asyncio.to_thread(subscribe))
    await elsewhere.until_blocked("late subscriber")
    await gate.rollback()

    await first
    assert await subscribing == 2
    store.close()
    await pipeline.post(shop)
    await owner.dispatch(shop.id)
    assert pipeline.sql(DELIVERIES) == [(2, "queued", None)]


async def test_an_event_accepted_before_the_unsubscription_is_still_delivered(pipeline: Pipeline, owner: Owner) -> None:
    shop = pipeline.lane()
    await pipeline.post(shop, 2)
    with pipeline.store.begin() as connection:
        subscriptions.unsubscribe(connection, "shop", "warehouse", actor=ACTOR)
    await pipeline.post(shop, 2)

    await owner.dispatch(shop.id)

    assert pipeline.sql(DELIVERIES) == [(1, "queued", None), (2, "queued", None)]


async def test_each_version_of_a_subscription_counts_for_its_own_events(pipeline: Pipeline, owner: Owner) -> None:
    shop = pipeline.lane()
    await pipeline.post(shop, type="user.made")
    pipeline.subscribe(types=["order.*"], ordering="none")
    for kind in ("user.made", "order.made"):
        await pipeline.post(shop, type=kind)
    pipeline.subscribe()
    await pipeline.post(shop, type="user.made")

    events = await owner.dispatch(shop.id)

    assert [(event.sequence, event.lanes[0][1:] if event.lanes else None) for event in events] == [
        (1, (0, 0)),
        (2, None),
        (3, (1, None)),
        (4, (3, 0)),
    ]


async def test_an_event_without_a_type_is_for_those_who_take_every_type(pipeline: Pipeline, owner: Owner) -> None:
    shop = pipeline.lane()
    pipeline.destination("orders")
    pipeline.subscribe(destination="orders", types=["*.*"])
    await pipeline.post(shop)
    await pipeline.post(shop, type="order.made")

    events = await owner.dispatch(shop.id)

    assert [len(event.lanes) for event in events] == [1, 2]


# --- what cannot wait ------------------------------------------------------------------------------------------------


async def test_what_comes_for_a_suspended_destination_is_parked_at_once(pipeline: Pipeline, owner: Owner) -> None:
    shop = pipeline.lane()
    pipeline.sql("UPDATE destinations SET state = 'suspended'")
    await pipeline.post(shop, 2)

    events = await owner.dispatch(shop.id)

    assert [event.lanes for event in events] == [(), ()]
    assert pipeline.sql(DELIVERIES) == [(n, "parked", "destination_suspended") for n in (1, 2)]
    assert pipeline.sql("SELECT seq, reason FROM parked ORDER BY seq") == [(n, "destination_suspended") for n in (1, 2)]
    assert pipeline.sql("SELECT waiting FROM lanes") == [(0,)]


async def test_what_was_accepted_for_a_destination_that_is_gone_is_parked(pipeline: Pipeline, owner: Owner) -> None:
    shop = pipeline.lane()
    await pipeline.post(shop)
    destinations.remove(pipeline.store, "warehouse", actor=ACTOR)

    await owner.dispatch(shop.id)

    assert pipeline.sql(DELIVERIES) == [(1, "parked", "destination_removed")]


async def test_a_lane_to_a_destination_that_is_down_takes_so_many_and_parks_the_rest(
    pipeline: Pipeline, owner: Owner
) -> None:
    shop = pipeline.partner()
    pipeline.destination()
    pipeline.subscribe(max_waiting=3)
    await pipeline.post(shop, 1)
    await owner.dispatch(shop.id)
    pipeline.sql("UPDATE gates SET breaker = 'open', opened_at = now()")

    await pipeline.post(shop, 4)
    events = await owner.dispatch(shop.id)

    assert [event.sequence for event in events if event.lanes] == [2, 3]
    assert pipeline.sql(DELIVERIES) == [(n, "queued", None) for n in (1, 2, 3)] + [
        (n, "parked", "lane_full") for n in (4, 5)
    ]
    assert waiting(pipeline) == [(3, 1, 5)]


async def test_a_lane_to_a_living_destination_is_bounded_by_the_partners_backlog_only(
    pipeline: Pipeline, owner: Owner
) -> None:
    shop = pipeline.partner()
    pipeline.destination()
    pipeline.subscribe(max_waiting=3)
    await pipeline.post(shop, 5)

    await owner.dispatch(shop.id)

    assert waiting(pipeline) == [(5, 1, 5)]
