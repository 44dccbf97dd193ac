"""Leases: one owner per shard, and a stale owner changes nothing (promise P5)."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from domain.lifecycle import Delivery, State
from storage import leases
from storage.errors import LeaseLost, StorageUnavailable
from tests.owner import Elsewhere, Owner, a_claim, an_outcome
from tests.pipeline import Pipeline

OWNER = "hookyard owner"
Make = Callable[[], Owner]


async def expire(elsewhere: Elsewhere) -> None:
    await elsewhere.rows("UPDATE workers SET expires_at = clock_timestamp() - interval '1 second'")


async def changed(elsewhere: Elsewhere) -> list[tuple[object, ...]]:
    return await elsewhere.rows(
        "SELECT (SELECT count(*) FROM deliveries), (SELECT sum(cursor) FROM partner_tails),"
        " (SELECT count(*) FROM deliveries WHERE state = 'delivering')"
    )


async def test_the_first_worker_owns_every_shard_at_its_first_epoch(make_owner: Make) -> None:
    lease = await make_owner().tend()

    assert (lease.epochs, lease.share, lease.living) == (dict.fromkeys(range(64), 1), 64, 1)


async def test_a_second_worker_is_told_its_share_and_takes_it_once_it_is_free(make_owner: Make) -> None:
    first, second = make_owner(), make_owner()
    await first.tend()
    assert (await second.tend()).epochs == {}
    assert (await first.tend()).share == 32

    await leases.give_back(first.connection, first.token, list(range(32, 64)))

    assert (await second.tend()).epochs == dict.fromkeys(range(32, 64), 2)
    assert (await first.tend()).epochs == dict.fromkeys(range(32), 1)


async def test_nobody_takes_more_than_a_fair_share(make_owner: Make) -> None:
    owners = [make_owner() for _ in range(3)]
    await owners[0].tend()
    await asyncio.gather(*(other.tend() for other in owners[1:]))
    await leases.give_back(owners[0].connection, owners[0].token, list(range(10, 64)))

    await asyncio.gather(*(other.tend() for other in owners[1:]))

    owned = [len((await one.tend()).epochs) for one in owners]
    assert sum(owned) == 64
    assert max(owned) <= 22


async def test_a_stopped_workers_shards_are_free_at_once(make_owner: Make) -> None:
    first, second = make_owner(), make_owner()
    await first.tend()

    await leases.give_back(first.connection, first.token)

    lease = await second.tend()
    assert (len(lease.epochs), lease.living) == (64, 1)


async def test_an_expired_lease_that_nobody_took_is_renewed_at_its_epoch(
    make_owner: Make, elsewhere: Elsewhere
) -> None:
    owner = make_owner()
    await owner.tend()
    await expire(elsewhere)

    assert (await owner.tend()).epochs == dict.fromkeys(range(64), 1)


async def test_a_lease_is_not_taken_before_it_has_ended(make_owner: Make) -> None:
    first, second = make_owner(), make_owner()
    await first.tend()

    assert (await second.tend()).epochs == {}


async def test_a_stale_owner_changes_nothing(pipeline: Pipeline, make_owner: Make, elsewhere: Elsewhere) -> None:
    shop = pipeline.lane()
    await pipeline.post(shop, 3)
    stale, successor = make_owner(), make_owner()
    await stale.tend()
    event, *_ = await stale.dispatch(shop.id, limit=1)
    (destination, _, _) = event.lanes[0]
    claim = a_claim(event, destination)
    await stale.claim(claim)
    await expire(elsewhere)
    await successor.tend()
    before = await changed(elsewhere)

    for write in (
        stale.dispatch(shop.id),
        stale.claim(a_claim(event, destination)),
        stale.end(an_outcome(claim, Delivery(State.DELIVERED, attempts=1, token=claim.token))),
        stale.tend(),
    ):
        with pytest.raises(LeaseLost):
            await write

    assert await changed(elsewhere) == before
    assert await elsewhere.rows("SELECT count(*) FROM attempts") == [(0,)]
    assert (await successor.tend()).epochs == dict.fromkeys(range(64), 2)


async def test_a_takeover_waits_for_a_transaction_of_the_owner_that_is_under_way(
    pipeline: Pipeline, make_owner: Make, elsewhere: Elsewhere
) -> None:
    shop = pipeline.lane()
    await pipeline.post(shop)
    owner, successor = make_owner(), make_owner()
    await owner.tend(timedelta(milliseconds=300))
    last = await elsewhere.transaction(
        "SELECT * FROM dispatch(%s, ARRAY[%s], ARRAY[false], 10, 1000)", owner.token, shop.id
    )
    await elsewhere.until("SELECT 1 FROM workers WHERE expires_at < clock_timestamp()")

    takeover = asyncio.ensure_future(successor.tend())
    await elsewhere.until_blocked(OWNER)
    assert not takeover.done()
    await last.commit()

    assert len((await takeover).epochs) == 64
    assert await elsewhere.rows("SELECT cursor FROM partner_tails") == [(1,)]


async def test_shards_are_not_given_back_under_a_dispatch_that_is_under_way(
    pipeline: Pipeline, make_owner: Make, elsewhere: Elsewhere
) -> None:
    """The next owner looks at its lanes once; what comes after that look must not be its predecessor's."""
    shop = pipeline.lane()
    await pipeline.post(shop)
    owner, successor = make_owner(), make_owner()
    await owner.tend()
    last = await elsewhere.transaction(
        "SELECT * FROM dispatch(%s, ARRAY[%s], ARRAY[false], 10, 1000)", owner.token, shop.id
    )

    giving = asyncio.ensure_future(leases.give_back(owner.connection, owner.token, [shop.shard]))
    await elsewhere.until_blocked(OWNER)
    assert not giving.done()
    await last.commit()
    await giving

    assert await owner.dispatch(shop.id) == []
    assert await elsewhere.rows("SELECT cursor, waiting FROM partner_tails JOIN lanes USING (partner_id)") == [(1, 1)]
    assert shop.shard in (await successor.tend()).epochs


async def test_an_owner_does_not_dispatch_what_it_gave_back(pipeline: Pipeline, make_owner: Make) -> None:
    shop = pipeline.lane()
    await pipeline.post(shop)
    owner = make_owner()
    await owner.tend()
    await leases.give_back(owner.connection, owner.token, [shop.shard])

    assert await owner.dispatch(shop.id) == []
    assert pipeline.sql("SELECT cursor FROM partner_tails") == [(0,)]


async def test_a_renewal_that_meets_a_takeover_is_one_or_the_other(make_owner: Make, elsewhere: Elsewhere) -> None:
    """Both at the very end of a lease: whoever comes second learns of the first."""
    for _ in range(10):
        one, two = make_owner(), make_owner()
        await one.tend()
        await expire(elsewhere)

        fates = await asyncio.gather(one.tend(), two.tend(), return_exceptions=True)

        kept = [fate for fate in fates if isinstance(fate, leases.Lease) and fate.epochs]
        assert len(kept) == 1
        assert all(isinstance(fate, leases.Lease | LeaseLost | StorageUnavailable) for fate in fates)
        for each in (one, two):
            await leases.give_back(each.connection, each.token)
