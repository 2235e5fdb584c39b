"""Runs `fw serve` and records the calls of the product's own functions while it is asked to.

A program of its own, so that what it records is the service as it runs in production, and so that
it can record another checkout: `PYTHONPATH` names the one whose packages are imported. It takes
the lines `begin` and `end` from the socket whose descriptor is its only argument, and answers
`end` with a JSON list of calls in the order of time.
"""

from __future__ import annotations

import inspect
import json
import socket
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import trio

GENERATORS: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
OWN: Final = ("fw_actors", "fw_cli", "supervisors", "web")

Recorded = tuple[str, str, int, int, str, int]
"""A call: file, function, thread, task, name of the task or thread, depth among own calls."""


class CallRecorder:
    """A profile function that notes the calls of own functions while it is switched on.

    A coroutine that goes on after a wait is no new call.
    """

    def __init__(self) -> None:
        self._names: dict[CodeType, tuple[str, str] | None] = {}
        self._calls: list[Recorded] = []
        self._on = False

    def begin(self) -> None:
        """Forget what was recorded, and record from now on."""
        self._calls = []
        self._on = True

    def end(self) -> list[Recorded]:
        """Stop recording; return the calls in the order of time."""
        self._on = False
        return self._calls

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if not self._on or event != "call":
            return
        own = self._own(frame.f_code)
        if own is None or _goes_on(frame):
            return
        self._calls.append((*own, threading.get_ident(), *_task(), self._depth(frame)))

    def _own(self, code: CodeType) -> tuple[str, str] | None:
        if code not in self._names:
            self._names[code] = _named(code)
        return self._names[code]

    def _depth(self, frame: FrameType | None) -> int:
        depth = 0
        while frame is not None:
            depth += self._own(frame.f_code) is not None
            frame = frame.f_back
        return depth


def _named(code: CodeType) -> tuple[str, str] | None:
    """Return the file, from the package on, and the function; None for code of others."""
    parts = Path(code.co_filename).parts
    for place in range(len(parts) - 1, -1, -1):
        if parts[place] in OWN and "site-packages" not in parts:
            return "/".join(parts[place:]), code.co_qualname
    return None


def _goes_on(frame: FrameType) -> bool:
    """Whether a coroutine or generator continues after a wait.

    CPython reports each entry at a RESUME instruction, whose argument is 0 at the first entry.
    """
    code = frame.f_code
    return bool(code.co_flags & GENERATORS) and code.co_code[frame.f_lasti + 1] != 0


def _task() -> tuple[int, str]:
    """Return the running task's number and name; 0 and the thread's name outside trio."""
    try:
        task = trio.lowlevel.current_task()
    except RuntimeError:
        return 0, threading.current_thread().name
    return id(task), task.name


def _obey(control: socket.socket, recorder: CallRecorder) -> None:
    with control, control.makefile("rw") as lines:
        for line in lines:
            answer: Any = None
            if line.strip() == "begin":
                recorder.begin()
            else:
                answer = recorder.end()
            lines.write(json.dumps(answer) + "\n")
            lines.flush()


def main(descriptor: int) -> None:
    """Serve the site of the working directory until a signal ends it."""
    recorder = CallRecorder()
    control = socket.socket(fileno=descriptor)
    threading.Thread(target=_obey, args=(control, recorder), daemon=True).start()
    from fw_cli import main as fw  # of the checkout that is recorded

    threading.setprofile(recorder)
    sys.setprofile(recorder)
    sys.argv[1:] = ["serve"]
    fw.main()


if __name__ == "__main__":
    main(int(sys.argv[1]))
