"""Bytes of an answer to an `Answer`, by h11; no I/O here.

Once a whole head is in, its status decides: what is wrong with the other lines of the head, or
with the body after it, only shortens the body and ends the connection's use (interface §7).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import h11
import msgspec

from fw_actors.http.answer import Answer, Times
from fw_actors.http.errors import ProtocolError
from fw_actors.http.lenient_head import rewritten
from fw_actors.http.short_way import read_short

MAX_ANSWER: Final = 64 * 1024  # bytes read of one answer, 1xx answers and heads included
MAX_BODY: Final = 512  # bytes kept of its body
MAX_INFORMATIONAL: Final = 20
MAX_HEADER: Final = 2048  # characters kept of a header's value

_USER_INFO: Final = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*:)?//[^/]*@")


_NO_BYTES: Final = bytearray()  # never written to: replaced when h11 is needed
_CUT_OFF: Final = "The receiver closed the connection before its answer's head was whole."
_BROKEN: Final = "The receiver broke the connection before it answered."
_NOT_HTTP: Final = "The receiver's answer is not valid HTTP/1.1."
_TOO_LONG: Final = "The receiver's answer has no end of its head within 64 KiB."
_TOO_MANY: Final = "The receiver sent more than 20 interim answers and no final one."


class AnswerReader(msgspec.Struct, eq=False):
    """Reads the answer to one POST; fed in pieces of any size.

    Args:
        status: None until the whole head of the final answer is in.
        room: how many bytes are still taken.
        ended: nothing more will be taken.
        reusable: the connection stands at the beginning of a next answer (RFC 9112 9.3).
        short_way: whether the plainest answers go around h11; for the test that compares both.
    """

    status: int | None = None
    room: int = MAX_ANSWER
    ended: bool = False
    reusable: bool = False
    short_way: bool = True
    _body: bytes = b""
    _headers: Sequence[tuple[bytes, bytes]] = ()
    _informational: int = 0
    _h11: h11.Connection | None = None
    _head: bytearray = _NO_BYTES  # the head that h11 is reading, while there is no status

    def __repr__(self) -> str:
        """Nothing of what was answered, which may be secret."""
        return f"<AnswerReader status={self.status} room={self.room} ended={self.ended}>"

    def feed(self, data: bytes) -> bool:
        """Take the next bytes of the connection, at most `room`; none means that it ended.

        Returns: whether nothing more has to be waited for.

        Raises: ProtocolError, where no head is in yet and none can come any more.
        """
        self.room -= len(data)
        if self._h11 is None:
            if self.short_way and (plain := read_short(data)) is not None:
                self.status, self._body = plain
                self.ended = self.reusable = True
                return True
            self._h11, self._head = _expecting_an_answer(), bytearray()
        self._parse(self._h11, data)
        if self.room <= 0 and not self.ended:
            self._stop(_TOO_LONG)
        return self.ended or len(self._body) >= MAX_BODY

    def break_off(self) -> None:
        """The connection broke: what is there is the answer.

        Raises: ProtocolError, where no head is in.
        """
        self._stop(_BROKEN)

    def answer(self, times: Times) -> Answer:
        """What was read so far, once `status` is there."""
        if self.status is None:
            raise ValueError("There is no answer before its head is in.")
        return make_answer(self.status, self._body[:MAX_BODY], self._headers, times)

    def _stop(self, otherwise: str) -> None:
        if self.status is None:
            raise ProtocolError(otherwise) from None
        self.ended = True

    def _parse(self, connection: h11.Connection, data: bytes) -> None:
        if self.status is None:
            self._head += data
        try:
            connection.receive_data(data)
            self._advance(connection)
        except h11.RemoteProtocolError:
            again = rewritten(self._head) if self.status is None else None
            if again is None:
                self._stop(_CUT_OFF if not data else _NOT_HTTP)
                return
            self._h11, self._head = _expecting_an_answer(), bytearray()
            self._parse(self._h11, again)

    def _advance(self, connection: h11.Connection) -> None:
        while not self.ended:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                return
            if isinstance(event, h11.InformationalResponse):
                self._informational += 1
                self._head = bytearray(connection.trailing_data[0])
                if self._informational > MAX_INFORMATIONAL:
                    self._stop(_TOO_MANY)
            elif isinstance(event, h11.Response):
                self.status, self._headers = event.status_code, event.headers
            elif isinstance(event, h11.Data):
                if len(self._body) < MAX_BODY:
                    self._body += event.data
            else:  # EndOfMessage
                self.ended = True
                self.reusable = (
                    connection.their_state is h11.DONE
                    and connection.our_state is h11.DONE
                    and connection.trailing_data == (b"", False)
                )


def make_answer(
    status: int,
    body: bytes,
    headers: Iterable[tuple[bytes, bytes]],
    times: Times,
) -> Answer:
    """Put an answer together; `headers` have lower-case names."""
    location = retry_after = None
    for name, value in headers:
        if name == b"location" and location is None:
            location = _without_secrets(value.decode("latin-1"))
        elif name == b"retry-after" and retry_after is None:
            retry_after = value.decode("latin-1")[:MAX_HEADER]
    return Answer(status, body, location, retry_after, times)


def _without_secrets(location: str) -> str:
    """A Location without user info, query and fragment, which may hold what was signed or typed."""
    path = re.split("[?#]", location, maxsplit=1)[0]
    return _USER_INFO.sub(r"\1//", path)[:MAX_HEADER]


def _expecting_an_answer() -> h11.Connection:
    """An h11 client that has sent a POST; the request's bytes are written elsewhere."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_ANSWER)
    connection.send(_POST)
    connection.send(_END)
    return connection


_POST: Final = h11.Request(
    method="POST", target="/", headers=[("host", "-"), ("content-length", "0")]
)
_END: Final = h11.EndOfMessage()
