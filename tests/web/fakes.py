"""A fake service in memory for tests of the front end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import trio

from fw_actors.access.administration import AccountStates, Profile, SelfService, UserAdministration
from fw_actors.access.links import LinkFacts, LinkKind
from fw_actors.access.passwords import PasswordChange, PasswordChanged
from fw_actors.access.sessions import Caller
from fw_actors.access.sign_in import SignedIn, SignInAttempt
from fw_actors.actors.gateway import Gateway
from fw_actors.actors.metrics import MetricSample
from fw_actors.documents.permissions import Rights
from fw_actors.documents.registry import Whitelisted
from fw_actors.errors import (
    AuthenticationError,
    FwError,
    InvalidTokenError,
    NotFoundError,
    TooManyRequestsError,
)
from fw_actors.ops.queued_jobs import JobControl
from fw_actors.rules.delivery import DeliveryStatus
from fw_actors.runtime.clock import SeededEntropy
from fw_actors.webhooks.diagnostics import StepTimes, TestEventResult
from fw_actors.webhooks.pacing import WebhookPause
from fw_actors.webhooks.replay import BulkReplays, Replayed
from fw_actors.webhooks.signing_keys import SecretRotation
from web.app import FrontEnd, make_app
from web.settings import Settings

T = TypeVar("T")

ANN = Profile("ann", "ann@example.test", "Ann Lee", "en", ("Sales User",))
SID = "s" * 32
TOKEN = "t" * 32
KEY = f"fwk_{'0' * 12}_{'k' * 32}"
PASSWORD = "correct horse"
EXPIRES = 1_772_280_000_000  # 2026-02-28T12:00:00.000Z
MAX_AGE = 30 * 86400


class FakeWebhooks:
    """Notes what was emitted."""

    def __init__(self) -> None:
        self.emitted: list[tuple[Any, ...]] = []
        self.batches: list[tuple[list[Any], bool]] = []

    def emit(
        self, name: str, data: dict[str, Any], reference: object = None, key: str | None = None
    ) -> dict[str, Any]:
        self.emitted.append((name, data, reference, key))
        return {"deliveries": ["msg_1"]}

    def emit_many(self, events: list[Any], all: bool) -> list[dict[str, Any]]:
        self.batches.append((events, all))
        return [{"deliveries": ["msg_1"]} for _ in events]


class FakeFw:
    """The handle that functions get, with its user and whether it may write."""

    def __init__(
        self, user: str, writes: bool, webhooks: FakeWebhooks, roles: frozenset[str]
    ) -> None:
        self.user = user
        self.rights = Rights(user, roles)
        self.writes = writes
        self.webhooks = webhooks


class FakeOwn:
    """The own account of ann."""

    def profile(self, fw: FakeFw) -> Profile:
        assert fw.user == ANN.name
        return ANN


class FakeGateway:
    """A fake gateway and its parts: one user, ann, with one session.

    `refuse` is raised by the next sign-in or call. `roles_by_then` are the roles in its
    transaction, if they have changed since it was authenticated.
    """

    def __init__(self) -> None:
        self.roles = frozenset(ANN.roles)
        self.roles_by_then: frozenset[str] | None = None
        self.refuse: BaseException | None = None
        self.attempts: list[SignInAttempt] = []
        self.ended: list[str] = []
        self.calls: list[tuple[object, ...]] = []
        self.request_ids: list[str] = []
        self.webhooks = FakeWebhooks()
        self.functions: dict[str, Whitelisted] = {}
        self.numbers: list[MetricSample] = []
        self.is_ready = True
        self.throttled: set[str] = set()
        self.defects: list[tuple[str, BaseException, str]] = []
        self.own = cast("SelfService", FakeOwn())
        self.users = cast("UserAdministration", None)
        self.account_states = cast("AccountStates", None)
        self.jobs = cast("JobControl", None)
        self.bulk = cast("BulkReplays", None)
        self.keys = self.recovery = self.invitation = self.errors = self

    async def check_address(self, address: str, request_id: str = "") -> None:
        if address in self.throttled:
            raise TooManyRequestsError(60)

    async def sign_in(self, attempt: SignInAttempt) -> SignedIn:
        self.attempts.append(attempt)
        if self.refuse is not None:
            raise self.refuse
        if attempt.pwd != PASSWORD:
            raise AuthenticationError("The name or the password is wrong.")
        return SignedIn(SID, ANN.name, ANN.full_name, EXPIRES, MAX_AGE)

    async def sign_out(self, sid: str) -> None:
        self.ended.append(sid)

    async def request_link(self, usr: str, address: str) -> None:
        self.calls.append(("forgot_password", usr, address))

    async def link_facts(self, token: str, address: str) -> LinkFacts:
        self.calls.append(("link_facts", token, address))
        if token != TOKEN:
            raise InvalidTokenError
        return LinkFacts(LinkKind.RECOVERY, ANN.name, ANN.full_name, ANN.email, EXPIRES)

    async def reset(self, token: str, password: str, address: str, request_id: str) -> None:
        self.calls.append(("reset_password", token, password, address))
        await self.link_facts(token, address)

    async def accept(
        self, token: str, password: str, full_name: str | None, address: str, request_id: str
    ) -> None:
        self.calls.append(("accept_invite", token, password, full_name, address))
        await self.link_facts(token, address)

    async def authenticate(self, sid: str) -> Caller:
        if sid != SID:
            raise AuthenticationError
        return Caller(ANN.name, self.roles, session="handle")

    async def caller(self, key: str, address: str) -> Caller:
        self.calls.append(("authenticate_key", key, address))
        if key != KEY:
            raise AuthenticationError("This API key is not valid.")
        return Caller(ANN.name, self.roles, api_key="0" * 12)

    async def change_password(self, change: PasswordChange) -> PasswordChanged:
        self.calls.append(("change_password", change))
        if change.current != PASSWORD:
            raise AuthenticationError("The current password is wrong.")
        return PasswordChanged(2)

    async def read(self, caller: Caller, fn: Callable[[Any], T], request_id: str = "") -> T:
        return self._run(caller, fn, request_id, writes=False)

    async def profile(self, caller: Caller) -> Profile:
        return await self.read(caller, self.own.profile)

    async def write(self, caller: Caller, fn: Callable[[Any], T], request_id: str = "") -> T:
        return self._run(caller, fn, request_id, writes=True)

    write_while_live = write

    def _run(self, caller: Caller, fn: Callable[[Any], T], request_id: str, *, writes: bool) -> T:
        if self.refuse is not None:
            raise self.refuse
        self.request_ids.append(request_id)
        roles = caller.roles if self.roles_by_then is None else self.roles_by_then
        return fn(FakeFw(caller.user, writes, self.webhooks, roles))

    async def prepare(
        self, caller: Caller, doctype: str, name: str | None, body: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        self.calls.append(("prepare", caller.user, doctype, name))
        return {**body, "new_password": "hashed"} if "new_password" in body else body

    async def replay(self, caller: Caller, delivery: str, request_id: str) -> Replayed:
        self.calls.append(("replay", caller.user, delivery, request_id))
        if self.refuse is not None:
            raise self.refuse
        return Replayed(delivery)

    async def pause_webhook(
        self, caller: Caller, webhook: str, seconds: int | None, request_id: str
    ) -> WebhookPause:
        self.calls.append(("pause_webhook", caller.user, webhook, seconds, request_id))
        if self.refuse is not None:
            raise self.refuse
        return WebhookPause(webhook, EXPIRES, None)

    async def resume_webhook(self, caller: Caller, webhook: str, request_id: str) -> WebhookPause:
        self.calls.append(("resume_webhook", caller.user, webhook, request_id))
        if self.refuse is not None:
            raise self.refuse
        return WebhookPause(webhook)

    async def rotate(
        self,
        caller: Caller,
        webhook: str,
        secret: str,
        overlap_hours: int,
        request_id: str,
        version: int | None = None,
    ) -> SecretRotation:
        given = () if version is None else (version,)
        call = ("rotate", caller.user, webhook, secret, overlap_hours, request_id, *given)
        self.calls.append(call)
        if self.refuse is not None:
            raise self.refuse
        until = "2026-03-01T12:00:00.000Z" if overlap_hours else None
        return SecretRotation(webhook, until, "2026-02-28T12:00:00.000Z")

    async def cancel_delivery(
        self, caller: Caller, delivery: str, request_id: str
    ) -> DeliveryStatus:
        self.calls.append(("cancel_delivery", caller.user, delivery, request_id))
        if self.refuse is not None:
            raise self.refuse
        return DeliveryStatus.FAILED

    async def erase(self, caller: Caller, delivery: str, request_id: str) -> str:
        self.calls.append(("erase", caller.user, delivery, request_id))
        if self.refuse is not None:
            raise self.refuse
        return "2026-02-28T12:00:00.000Z"

    def new_secret(self) -> str:
        return "whsec_made"

    async def test_webhook(self, caller: Caller, webhook: str, request_id: str) -> TestEventResult:
        self.calls.append(("test_webhook", caller.user, webhook, request_id))
        if self.refuse is not None:
            raise self.refuse
        return TestEventResult(None, "timeout: late.", StepTimes(dns=1.5, connect=2.0))

    def note(self, method: str, error: BaseException, request_id: str) -> None:
        self.defects.append((method, error, request_id))

    async def ready(self) -> bool:
        return self.is_ready

    async def samples(self) -> Sequence[MetricSample]:
        return self.numbers


class HeldGateway(FakeGateway):
    """Lets sign-ins wait until they are released."""

    def __init__(self) -> None:
        super().__init__()
        self.release, self.began, self.cancelled = trio.Event(), trio.Event(), trio.Event()
        self.waiting = 0

    async def sign_in(self, attempt: SignInAttempt) -> SignedIn:
        self.waiting += 1
        self.began.set()
        try:
            await self.release.wait()
        except trio.Cancelled:
            self.cancelled.set()
            raise
        finally:
            self.waiting -= 1
        return await super().sign_in(attempt)


DOCUMENT_FUNCTIONS = (
    "list_documents", "insert", "read", "save", "delete", "submit", "cancel", "rename", "export",
)  # fmt: skip


class FakeDocuments:
    """A fake `fw_actors.documents.rest`: orders in a dict, and a record of calls."""

    def __init__(self) -> None:
        self.held: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[str, Any]] = []
        self.versions: list[int | None] = []
        self.refuse: FwError | None = None

    def list_documents(self, fw: Any, doctype: str, listing: Mapping[str, Any]) -> dict[str, Any]:
        assert not fw.writes
        self.calls.append((doctype, dict(listing)))
        return {"data": list(self.held.values()), "total": len(self.held)}

    def insert(self, fw: Any, doctype: str, body: Mapping[str, Any]) -> dict[str, Any]:
        assert fw.writes
        self.calls.append((doctype, dict(body)))
        self.held[body["name"]] = {"doctype": doctype, "owner": fw.user, **body}
        return self.held[body["name"]]

    def read(self, fw: Any, doctype: str, name: str) -> dict[str, Any]:
        assert not fw.writes
        return self._found(doctype, name)

    def save(self, fw: Any, doctype: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        assert fw.writes
        return {**self._found(doctype, name), **body}

    def delete(
        self, fw: Any, doctype: str, name: str, version: int | None = None
    ) -> dict[str, Any]:
        assert fw.writes
        self.versions.append(version)
        del self.held[self._found(doctype, name)["name"]]
        return {"ok": True}

    def submit(
        self, fw: Any, doctype: str, name: str, version: int | None = None
    ) -> dict[str, Any]:
        assert fw.writes
        self.versions.append(version)
        return self._found(doctype, name) | {"docstatus": 1}

    def cancel(
        self, fw: Any, doctype: str, name: str, version: int | None = None
    ) -> dict[str, Any]:
        assert fw.writes
        self.versions.append(version)
        return self._found(doctype, name) | {"docstatus": 2}

    def rename(
        self,
        fw: Any,
        doctype: str,
        name: str,
        body: Mapping[str, Any],
        version: int | None = None,
    ) -> dict[str, Any]:
        assert fw.writes
        self.versions.append(version)
        return self._found(doctype, name) | {"name": body["name"]}

    def export(self, fw: Any, doctype: str, name: str) -> dict[str, Any]:
        assert not fw.writes
        return self._found(doctype, name)

    def _found(self, doctype: str, name: str) -> dict[str, Any]:
        if name not in self.held:
            raise NotFoundError(f"There is no {doctype} {name}.")
        return self.held[name]


def app_of(gateway: FakeGateway, **settings: Any) -> FrontEnd:
    """Return an application over the fakes."""
    site = Settings(**{"name": "bb", "url": "http://127.0.0.1:1", **settings})
    return make_app(cast("Gateway", gateway), site, SeededEntropy(1))
