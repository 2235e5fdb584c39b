"""Clients of real processes: they write, guess and spend links until the load is over, and keep
the responses they received."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import httpx

from tests.live_site import NO_TLS, PASSWORD

WRITERS: Final = 4
CSRF: Final = {"X-FW-CSRF": "1"}
VICTIM: Final = "victim"
_BETWEEN_SECONDS: Final = 0.01  # a load, not a flood: all of it must be delivered in the end
_PAUSE_SECONDS: Final = 0.02  # before a client without a response asks another node


@dataclass
class ClientAnswers:
    """The answers that clients received; a request without an answer is not counted."""

    notes: set[str] = field(default_factory=set)  # names of Notes whose insert was answered 201
    guesses: Counter[int] = field(default_factory=Counter)  # status: how often
    spent: Counter[str] = field(default_factory=Counter)  # token: how often it was answered 200
    refused: Counter[int] = field(default_factory=Counter)  # inserts: status, how often
    strange: list[str] = field(default_factory=list)  # responses that must not occur


class Load:
    """A context manager: clients work inside the block, at any node that `urls` gives.

    `excused`: statuses that an insert may be answered; the refusal is clear, and nothing is there.
    `patience`: seconds that a client waits for a response; without one nothing is guaranteed.
    """

    def __init__(
        self,
        urls: Callable[[], Sequence[str]],
        cookie: Mapping[str, str],
        token: str,
        answers: ClientAnswers,
        excused: frozenset[int] = frozenset(),
        patience: float = 30.0,
    ) -> None:
        self._urls, self._cookie, self._token = urls, dict(cookie), token
        self._answers, self._excused, self._patience = answers, excused, patience
        self._over, self._lock = threading.Event(), threading.Lock()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        works: list[Callable[[int], None]] = [*[self._write] * WRITERS, self._guess]
        works += [self._spend] * 2
        self._threads = [
            threading.Thread(target=work, args=(number,), daemon=True)
            for number, work in enumerate(works)
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def _write(self, number: int) -> None:
        """Insert Notes; a client without a response has no guarantee and asks another node."""

        def insert(client: httpx.Client) -> None:
            answer = client.post("/api/resource/Note", json={"title": "a note"})
            status = answer.status_code
            with self._lock:
                if status == 201:
                    self._answers.notes.add(answer.json()["data"]["name"])
                elif status not in self._excused or "retry-after" not in answer.headers:
                    self._answers.strange.append(f"an insert was answered {status}: {answer.text}")
                self._answers.refused[status] += status != 201

        self._again_and_again(number, insert, self._cookie)

    def _guess(self, number: int) -> None:
        """Guess the victim's password."""

        def guess(client: httpx.Client) -> None:
            answer = client.post("/api/login", json={"usr": VICTIM, "pwd": "wrong"})
            with self._lock:
                self._answers.guesses[answer.status_code] += 1

        self._again_and_again(number, guess, {})

    def _again_and_again(
        self, number: int, work: Callable[[httpx.Client], None], cookie: Mapping[str, str]
    ) -> None:
        while not self._over.is_set():
            number += 1
            url = self._url(number)
            try:
                with httpx.Client(
                    base_url=url,
                    headers=CSRF,
                    cookies=dict(cookie),
                    timeout=self._patience,
                    verify=NO_TLS,
                ) as client:
                    while not self._over.wait(_BETWEEN_SECONDS):
                        work(client)
            except httpx.HTTPError:
                self._over.wait(_PAUSE_SECONDS)

    def _spend(self, number: int) -> None:
        """Accept an invitation twice concurrently, before and after a kill."""
        body = {"token": self._token, "password": f"{PASSWORD} {number}"}
        url = self._url(number) + "/api/auth/accept-invite"
        try:
            answer = httpx.post(url, json=body, timeout=self._patience, verify=NO_TLS)
        except httpx.HTTPError:
            return
        with self._lock:
            self._answers.spent[self._token] += answer.status_code == 200

    def _url(self, number: int) -> str:
        urls = self._urls()
        return urls[number % len(urls)]
