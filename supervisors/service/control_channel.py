"""The connection of a process of the service to its supervisor, and through it to the others.

A process gets its `Assignment` from the fork server. Then it has a `ControlChannel`, on which both
sides send requests, and `PeerProcesses`, the other processes as it reaches them.

A frame of the channel is its length in four bytes, then msgpack. Either side may send requests;
answers may come in any order. A side that does not read never blocks the other: beyond a limit,
frames for it are dropped, and dropped requests time out.
"""

from __future__ import annotations

import math
import os
import pickle  # nosec B403
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import trio

from fw_actors import __version__
from fw_actors.config import Config, ProcessPlace
from supervisors.service.site_files import ServiceError

if TYPE_CHECKING:
    from fw_actors.actors.console import RequestHandler

MAX_WAITING_FRAMES: Final = 256
"""The maximum number of frames that the other side has not read; further ones are dropped."""
MAX_FRAME_BYTES: Final = 16 << 20
_LENGTH: Final = struct.Struct("!I")
_RECEIVE_BYTES: Final = 64 << 10

FrameHandler = Callable[[str, Any], Awaitable[object]]
"""Answers a request, given its name and its argument, in types of msgpack."""


class ChannelFailed(Exception):
    """Raised if a request gets no answer: the other side has ended, is too slow, or failed."""


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """A request, its answer, or its failure; `id` relates them, and 0 means that no answer is
    expected."""

    kind: Literal["ask", "answer", "failed"]
    id: int
    name: str
    body: Any = None


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Frame)


class ControlChannel:
    """One side of the channel; `run` serves it until the other side has ended."""

    def __init__(self, own: socket.socket, handle: FrameHandler) -> None:
        """`own` is one of a pair of Unix stream sockets."""
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(own))
        self._handle = handle
        self._outgoing, self._to_send = trio.open_memory_channel[bytes](MAX_WAITING_FRAMES)
        self._waiting: dict[int, tuple[trio.Event, list[Frame]]] = {}
        self._ids = 0
        self.closed = trio.Event()
        """Set when the other side has ended."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send and receive; return when the other side has ended."""
        try:
            async with self._stream, trio.open_nursery() as nursery:
                nursery.start_soon(self._send_all)
                task_status.started()
                await self._receive_all(nursery)
                nursery.cancel_scope.cancel()
        finally:
            self.closed.set()
            for answered, _ in self._waiting.values():
                answered.set()

    async def ask(self, name: str, body: object = None, *, seconds: float = math.inf) -> Any:
        """Send a request and return the answer. Raises: ChannelFailed."""
        if self.closed.is_set():
            raise ChannelFailed("the other process has gone")
        self._ids += 1
        id, answered, replies = self._ids, trio.Event(), list[Frame]()
        self._waiting[id] = answered, replies
        try:
            self._put(Frame("ask", id, name, body))
            with trio.move_on_after(seconds):
                await answered.wait()
        finally:
            del self._waiting[id]
        if not replies:
            raise ChannelFailed(f"the other process did not answer {name!r}")
        if replies[0].kind == "failed":
            raise ChannelFailed(replies[0].body)
        return replies[0].body

    def tell(self, name: str, body: object = None) -> None:
        """Send a request that is not answered; it may be lost if the other side does not read."""
        self._put(Frame("ask", 0, name, body))

    def _put(self, frame: Frame) -> None:
        content = _ENCODER.encode(frame)
        if len(content) <= MAX_FRAME_BYTES:
            with suppress(trio.WouldBlock):  # the request of a dropped frame times out
                self._outgoing.send_nowait(_LENGTH.pack(len(content)) + content)

    async def _send_all(self) -> None:
        try:
            async for content in self._to_send:
                await self._stream.send_all(content)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # `_receive_all` notices it too

    async def _receive_all(self, nursery: trio.Nursery) -> None:
        buffer = bytearray()
        while True:
            while len(buffer) >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(buffer)
                end = _LENGTH.size + length
                if len(buffer) < end:
                    break
                frame = _DECODER.decode(buffer[_LENGTH.size : end])
                del buffer[:end]
                self._take(frame, nursery)
            try:
                part = await self._stream.receive_some(_RECEIVE_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
            if not part:
                return
            buffer += part

    def _take(self, frame: Frame, nursery: trio.Nursery) -> None:
        if frame.kind == "ask":
            nursery.start_soon(self._answer, frame)
        elif frame.id in self._waiting:
            answered, replies = self._waiting[frame.id]
            replies.append(frame)
            answered.set()

    async def _answer(self, request: Frame) -> None:
        try:
            body = await self._handle(request.name, request.body)
        except Exception as error:
            if not request.id:
                raise
            self._put(Frame("failed", request.id, request.name, f"{type(error).__name__}: {error}"))
        else:
            if request.id:
                self._put(Frame("answer", request.id, request.name, body))


HEALTH_CHECK: Final = "answers"
"""The supervisor's request that checks whether a process works; the argument is the limit in
seconds."""


@dataclass(frozen=True)
class PeerAnswers:
    """The answers of other processes to one request, by their numbers."""

    answers: Mapping[int, Any] = field(default_factory=dict)
    unanswered: Sequence[int] = ()
    """The processes that were asked in vain."""
    restarts: Mapping[int, int] = field(default_factory=dict)
    """The number of restarts of each process; nothing if the supervisor did not answer."""


GATHER_SECONDS: Final = 2.0
"""The time within which a process must answer the request of another."""
SUPERVISOR_SECONDS: Final = 1.0


class PeerProcesses:
    """Asks the other processes of this service, and answers them."""

    def __init__(self, place: ProcessPlace) -> None:
        self.place = place
        self._handlers: dict[str, RequestHandler] = {}
        self._channel: ControlChannel | None = None

    def connect(self, channel: ControlChannel) -> None:
        """Use this channel from now on."""
        self._channel = channel

    def register(self, request: str, handler: RequestHandler) -> None:
        """Register `handler` for the request `request` of other processes."""
        self._handlers[request] = handler

    async def gather(
        self, request: str, argument: object = None, *, to: int | None = None
    ) -> PeerAnswers:
        """Ask the other processes, or only number `to`.

        A process that starts or ends is not asked. One that does not answer within
        `GATHER_SECONDS` is in `unanswered`; all are if the supervisor does not answer.
        """
        if self._channel is None:
            return PeerAnswers()
        try:
            return await self._gather(self._channel, request, argument, to)
        except ChannelFailed:
            numbers = range(1, self.place.count + 1) if to is None else (to,)
            return PeerAnswers(unanswered=[n for n in numbers if n != self.place.number])

    async def _gather(
        self, channel: ControlChannel, request: str, argument: object, to: int | None
    ) -> PeerAnswers:
        # The supervisor waits for the processes; its own answer takes a moment longer.
        limit = GATHER_SECONDS + SUPERVISOR_SECONDS
        reply = await channel.ask("gather", [request, argument, to], seconds=limit)
        answers: Mapping[int, Any] = reply["answers"]
        unanswered = [number for number in reply["asked"] if number not in answers]
        return PeerAnswers(answers, unanswered, reply["restarts"])

    async def paused_receivers(self) -> Sequence[str]:
        """Return the receivers that other processes have paused, for a process that starts.

        It waits for a supervisor that does not answer: without the pauses this process would send
        to these receivers.
        """
        channel = self._channel
        while channel is not None and not channel.closed.is_set():
            try:
                gathered = await self._gather(channel, "paused", None, None)
            except ChannelFailed:
                continue
            return sorted({each for paused in gathered.answers.values() for each in paused})
        return []

    async def answer(self, request: str, argument: Any) -> object:
        """Answer another process. Raises: LookupError for a request that this one does not know."""
        return await self._handlers[request](argument)


class VersionChanged(ServiceError):
    """Raised in a process that was replaced after another version had been installed."""

    def __init__(self, version: str) -> None:
        super().__init__(
            f"the service runs version {version}, and this program is {__version__}: "
            "restart the service"
        )


class Assignment(msgspec.Struct, frozen=True):
    """The place of a process, its configuration, and its descriptors.

    It is sent through a socket and not in the environment: secrets must not be in the environment
    of a child (C-84). The configuration is the supervisor's, so that a replaced process serves with
    the configuration with which the service was started, even if the files have changed.

    `version` is the supervisor's. `pickled_config` is a `Config`. `listening` is the socket on
    which all processes accept, `control` the channel to the supervisor, `subscriptions` the memory
    of `SharedSubscriptions`. `lock` is the site's lock, which is held until the last process has
    ended. `alone`: no other process accepts requests yet, so that this one answers health
    checks while it starts. `run_folder` is as in `SitePaths`, or empty.
    """

    number: int
    count: int
    version: str
    pickled_config: bytes
    url: str
    listening: int
    control: int
    subscriptions: int
    lock: int
    alone: bool
    run_folder: str

    @property
    def place(self) -> ProcessPlace:
        """The process's place in the service."""
        return ProcessPlace(self.number, self.count)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors, which are sent with it."""
        return (self.listening, self.control, self.subscriptions, self.lock)

    def config(self) -> Config:
        """Return the configuration of this process.

        Raises: VersionChanged if this program is not the supervisor's.
        """
        if self.version != __version__:
            raise VersionChanged(self.version)
        # From this process's own supervisor, through a private socket.
        whole: Config = pickle.loads(self.pickled_config)  # nosec B301
        return whole.for_process(self.place)

    def encoded(self) -> bytes:
        """Return the assignment as it is sent to the process."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def decoded(cls, content: bytes, descriptors: Sequence[int]) -> Assignment:
        """Return an assignment that this process has received with its `descriptors`."""
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)  # programs that apps start must not inherit it
        sent = msgspec.msgpack.decode(content, type=cls)
        listening, control, subscriptions, lock = descriptors
        return msgspec.structs.replace(
            sent, listening=listening, control=control, subscriptions=subscriptions, lock=lock
        )
