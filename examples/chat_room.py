"""A chat room over TCP: an actor for the room and one for each member; slow members delay nobody.

python -m examples.chat_room &
nc localhost 9101
"""

from __future__ import annotations

import signal
from contextlib import suppress
from functools import partial

import trio
from trio.abc import Stream

from fw_actors.runtime import (
    Actor,
    ActorRef,
    Down,
    MailboxPolicy,
    Message,
    Overflow,
    Runtime,
    SystemClock,
    SystemEntropy,
    handles,
    open_runtime,
)
from supervisors import (
    DynamicSupervisor,
    Restart,
    TooManyChildren,
    actor_child,
    dynamic_child,
    open_supervisor,
)

MAX_MEMBERS = 500
MAX_LINE = 1000  # bytes


class Join(Message, frozen=True):
    """A member has come; the room forgets it when its actor ends."""

    name: str
    member: ActorRef


class Say(Message, frozen=True):
    text: str


class Left(Message, frozen=True):
    down: Down


class Room(Actor):
    """Tells each line to all members."""

    mailbox = MailboxPolicy(capacity=1000, overflow=Overflow.WAIT, max_timers=MAX_MEMBERS)

    def __init__(self) -> None:
        self.members: dict[str, ActorRef] = {}

    @handles(Join)
    def join(self, message: Join) -> None:
        self.members[message.name] = message.member
        self.context.watch(message.member, then=Left)
        self._tell_all(f"{message.name} is here")

    @handles(Left)
    def left(self, message: Left) -> None:
        if self.members.pop(message.down.name, None) is not None:
            self._tell_all(f"{message.down.name} has left")

    @handles(Say)
    def say(self, message: Say) -> None:
        self._tell_all(message.text)

    def describe(self) -> dict[str, object]:
        return {"members": len(self.members)}

    def _tell_all(self, text: str) -> None:
        for member in self.members.values():
            member.tell(Say(text))  # never waits


class Member(Actor):
    """Writes to one client. While it is slow, the oldest of its lines are dropped."""

    mailbox = MailboxPolicy(capacity=100, overflow=Overflow.DROP_OLDEST)

    def __init__(self, client: Stream) -> None:
        self.client = client

    @handles(Say)
    async def write(self, message: Say) -> None:
        try:
            await self.client.send_all(message.text.encode() + b"\n")
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.context.stop()


class Chat:
    """What each connection needs: the room, and the supervisor of the members."""

    def __init__(self, runtime: Runtime) -> None:
        self.room = runtime.ref("room", of=Room)
        self.members = DynamicSupervisor("members", limit=MAX_MEMBERS)
        self.children = [actor_child("room", Room), dynamic_child(self.members)]
        self._count = 0

    async def serve(self, client: Stream) -> None:
        """Run a member for one client, until the client has gone."""
        self._count += 1
        name = f"member-{self._count}"
        spec = actor_child(name, partial(Member, client), restart=Restart.TEMPORARY)
        async with client:
            try:
                member = await self.members.start_child(spec)
            except TooManyChildren:
                await client.send_all(b"the room is full\n")
                return
            try:
                with suppress(trio.BrokenResourceError):  # the client has gone
                    await self.room.send(Join(name, member))
                    await self._listen(name, client)
            finally:
                with trio.CancelScope(shield=True):
                    await self.members.stop_child(name)

    async def _listen(self, name: str, client: Stream) -> None:
        line = b""
        async for part in client:
            *lines, line = (line + part).split(b"\n")
            for text in lines:
                await self.room.send(Say(f"{name}: {text.decode(errors='replace')}"))
            if len(line) > MAX_LINE:
                return


async def main() -> None:
    """Serve until SIGINT or SIGTERM."""
    async with open_runtime(clock=SystemClock(), entropy=SystemEntropy()) as runtime:
        chat = Chat(runtime)
        async with (
            open_supervisor(runtime, "chat", chat.children),
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(trio.serve_tcp, chat.serve, 9101)
            with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                async for _ in signals:
                    nursery.cancel_scope.cancel()
                    break


if __name__ == "__main__":
    trio.run(main)
