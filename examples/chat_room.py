"""A chat room over TCP: a topic, and an actor for each member; slow members delay nobody.

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
    Message,
    Runtime,
    SystemClock,
    SystemEntropy,
    Topic,
    TopicOverflow,
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


class ChatLine(Message, frozen=True):
    text: str


class ChatMember(Actor):
    """Writes to one client. While it is slow, the oldest of its lines are dropped."""

    def __init__(self, client: Stream, room: Topic[ChatLine]) -> None:
        self.client = client
        self.room = room

    async def started(self) -> None:
        self.room.subscribe(self.context.ref, overflow=TopicOverflow.DROP_OLDEST, capacity=100)

    @handles(ChatLine)
    async def write(self, message: ChatLine) -> None:
        try:
            await self.client.send_all(message.text.encode() + b"\n")
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.context.stop()


class Chat:
    """The dependencies of each connection: the room, and the supervisor of the members."""

    def __init__(self, runtime: Runtime) -> None:
        self.room: Topic[ChatLine] = Topic(runtime, "room", max_members=MAX_MEMBERS)
        self.members = DynamicSupervisor("members", limit=MAX_MEMBERS)
        self.children = [dynamic_child(self.members)]
        self._count = 0

    async def serve(self, client: Stream) -> None:
        """Run a member for one client, until the client has gone."""
        self._count += 1
        name = f"member-{self._count}"
        spec = actor_child(name, partial(ChatMember, client, self.room), restart=Restart.TEMPORARY)
        async with client:
            try:
                await self.members.start_child(spec)
            except TooManyChildren:
                await client.send_all(b"the room is full\n")
                return
            try:
                await self.room.publish(ChatLine(f"{name} is here"))
                with suppress(trio.BrokenResourceError):  # the client has gone
                    await self._listen(name, client)
            finally:
                with trio.CancelScope(shield=True):
                    await self.members.stop_child(name)
                    await self.room.publish(ChatLine(f"{name} has left"))

    async def _listen(self, name: str, client: Stream) -> None:
        line = b""
        async for part in client:
            *lines, line = (line + part).split(b"\n")
            for text in lines:
                await self.room.publish(ChatLine(f"{name}: {text.decode(errors='replace')}"))
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
