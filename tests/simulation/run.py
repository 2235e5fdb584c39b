"""Runs one seed: makes the world, runs clients and faults, and checks the final state."""

from __future__ import annotations

import os
import shutil
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio
from trio.testing import MockClock

from fw_actors.access.users import add_user
from fw_actors.documents import rest
from fw_actors.documents.handle import Fw
from fw_actors.runtime.testing import task_order
from tests.simulation.access_work import AccessWork
from tests.simulation.clients import MANAGER, SimulatedClient
from tests.simulation.event_work import EventWork, hook_body
from tests.simulation.fault_injector import FaultInjector
from tests.simulation.key_work import KeyWork
from tests.simulation.node import NodeProcess
from tests.simulation.own_work import OwnWork
from tests.simulation.people import SimulatedAccount
from tests.simulation.receiver_work import ReceiverWork
from tests.simulation.replay_work import ReplayWork
from tests.simulation.scope_work import ScopeWork
from tests.simulation.verdict import check_end, settled
from tests.simulation.world import World

SECONDS: Final = 20.0
SETTLE_SECONDS: Final = 1200.0
CLIENTS: Final = 3
MAX_SECONDS_AT_FULL_PACE: Final = 600.0  # a day is no busier than ten minutes
PEOPLE: Final = ("anna", "bert", "cleo")
STAFF: Final[Mapping[str, Sequence[str]]] = {
    "admin": ("System Manager",), "agent": ("Agent",), "auditor": ("System Manager",),
}  # fmt: skip
FAST_DISK: Final = Path("/dev/shm")


@dataclass(frozen=True)
class SeedResult:
    """The result of one seed."""

    seed: int
    broken: tuple[str, ...]
    lines: tuple[str, ...]
    digest: str
    virtual_seconds: float
    commits: int
    deliveries: int


def simulate(seed: int, seconds: float = SECONDS) -> SeedResult:
    """Run one seed from its beginning to its verdict.

    Args:
        seed: decides everything.
        seconds: how long clients and faults continue, in virtual time (s).
    """
    where = FAST_DISK if FAST_DISK.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="fw-simulation-", dir=where))
    try:
        with task_order(seed):
            return trio.run(_run, seed, seconds, folder, clock=MockClock(autojump_threshold=0))
    except Exception as error:  # a defect of the simulation itself, reported with its seed
        text = "".join(traceback.format_exception(error))
        return SeedResult(seed, (f"the simulation failed: {text}",), (), "", 0.0, 0, 0)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _run(seed: int, seconds: float, folder: Path) -> SeedResult:
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        world = World(str(seed), folder, nursery)
        await _set_up(world)
        await _run_clients(world, began + seconds)
        await _resume_all(world)
        await _wait_until_settled(world)
        nursery.cancel_scope.cancel()
    return await _result(world, seed, trio.current_time() - began)


async def _result(world: World, seed: int, seconds: float) -> SeedResult:
    """Reached also after a broken promise, when all running tasks were cancelled."""
    ledger = world.ledger
    commits = ledger.commits if ledger is not None else 0
    deliveries = len(ledger.state.deliveries) if ledger is not None else 0
    if ledger is not None:
        ledger.close()
    if world.memory is not None:
        os.close(world.memory)
    return SeedResult(
        seed, tuple(world.broken), tuple(world.trace.lines), world.trace.digest, seconds, commits,
        deliveries,
    )  # fmt: skip


async def _set_up(world: World) -> None:
    """Start the first process; make accounts and the webhooks that stay unchanged."""
    node = world.nodes[0]
    await node.start()
    assert node.up is not None, world.trace.lines
    site = node.up.site
    for name in (*PEOPLE, *STAFF):
        password = f"the first password of {name}"
        account = world.people.add(name, password)
        hashed = await site.hash_password(password, name, account.email)
        add = partial(_add, account, STAFF.get(name, ()), hashed)
        await site.write("Administrator", add)
        if name in STAFF:
            del world.people.accounts[name]  # no client changes those
    client = SimulatedClient(world, "founder")
    for number, watched in enumerate(("custom", "tickets")):
        secret = client.secret()
        body = hook_body(world.url(number), secret)
        if watched == "tickets":
            body |= {"event_type": "Document", "webhook_doctype": "Ticket", "custom_event": None}
            body |= dict.fromkeys(("on_insert", "on_update", "on_submit", "on_cancel"), 1)
            body |= {"on_trash": 1, "ordering": world.rng("order").choice(("none", "document"))}
        made = await site.write("Administrator", partial(_hook, body))
        world.steady.append(made["name"])
        world.secrets[made["name"]] = [secret]
    world.open_ledger()
    if world.rng("second").random() < 0.6:
        await world.nodes[1].start()


def _add(account: SimulatedAccount, roles: Sequence[str], hashed: str, fw: Fw) -> None:
    add_user(fw, account.name, account.email, "", roles, hashed)


def _hook(body: Mapping[str, Any], fw: Fw) -> dict[str, Any]:
    return rest.insert(fw, "Webhook", body)


async def _run_clients(world: World, until: float) -> None:
    """Run the clients and inject faults, then end every fault."""
    faults = FaultInjector(world)
    async with trio.open_nursery() as nursery:
        for number in range(CLIENTS):
            nursery.start_soon(_work, SimulatedClient(world, f"client{number}"), until)
        nursery.start_soon(faults.inject, until)
        nursery.start_soon(_watch, world, until)
    await faults.repair()


async def _work(client: SimulatedClient, until: float) -> None:
    events, access, keys = EventWork(client), AccessWork(client), KeyWork(client)
    replays, scopes, own = ReplayWork(client), ScopeWork(client), OwnWork(client)
    receivers = ReceiverWork(client)
    works = (
        *(events.emit,) * 4, *(events.emit_batch,) * 2, *(events.ticket,) * 5, events.roll_back,
        events.caught, events.job, events.hook, events.hook, events.own_hook, events.sweep,
        events.look_for_dead_receivers,
        *(access.sign_in,) * 3, access.guess,
        *(access.use_session,) * 4, access.sign_out, access.forget, access.use_link,
        access.use_link, access.invite, access.switch, access.set_password, replays.replay,
        replays.replay, replays.replay_many, keys.make, keys.use, keys.use, keys.guess,
        keys.revoke, scopes.change, scopes.reach, scopes.write, scopes.replay,
        own.change_password, own.end_others, receivers.pause, receivers.resume, receivers.limit,
        receivers.order, receivers.rotate, receivers.rotate, receivers.erase, receivers.erase_many,
        receivers.cancel, receivers.cancel, receivers.cancel_many,
    )  # fmt: skip
    rng = client.rng
    favourites = rng.sample(works, rng.randint(4, len(works)))
    pace = max(1.0, (until - trio.current_time()) / MAX_SECONDS_AT_FULL_PACE)
    while trio.current_time() < until:
        await rng.choice(favourites)()
        await trio.sleep(pace * rng.choice((0.0, 0.01, 0.2, 1.0, 2.0)))


async def _watch(world: World, until: float) -> None:
    """Mailboxes always stay within their bounds."""
    while trio.current_time() < until:
        for node in world.nodes:
            up = node.up
            for seen in up.runtime.snapshot().walk() if up is not None else ():
                if seen.capacity and seen.depth > seen.capacity:
                    world.broke(f"{seen.name} holds {seen.depth} messages of {seen.capacity}")
        await trio.sleep(1.0)


async def _resume_all(world: World) -> None:
    """End all pauses: deliveries of a paused Webhook wait until then."""
    assert world.ledger is not None
    for name, hook in world.ledger.state.hooks.items():
        if hook.paused_until is not None:
            resume = partial(_resume, name)
            await world.nodes[0].request(resume)


async def _resume(webhook: str, up: NodeProcess) -> None:
    await up.gateway.resume_webhook(MANAGER, webhook, "")


async def _wait_until_settled(world: World) -> None:
    """Wait until nothing is owed any more; stop in order; check."""
    with trio.move_on_after(SETTLE_SECONDS):
        while not settled(world):  # noqa: ASYNC110 - the store has no event for other processes
            await trio.sleep(0.5)
    check_end(world)
    for node in world.nodes:
        await node.stop()
    await trio.sleep(3.0)  # receivers notice closed connections
    leftover = sum(receiver.wires for receiver in world.receivers)
    if leftover:
        world.broke(f"{leftover} connections are left after the stop")
