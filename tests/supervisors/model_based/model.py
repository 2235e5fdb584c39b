"""The model: what callers and handlers report, and the invariants that each report must keep."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf

import trio
from outcome import Outcome

from fw_actors.runtime import (
    ActorError,
    AskTimeout,
    MailboxFull,
    Overflow,
    Refused,
)
from fw_actors.runtime.cell import ActorState
from tests.supervisors.model_based.actor_tree import RandomActorTree
from tests.supervisors.model_based.messages import (
    CARRIED,
    EPSILON,
    NOT_CARRIED,
    WORKER_POOL,
    AskSettled,
    GivingUpScriptedRequest,
    InstanceRecord,
    MessageRecord,
    Publication,
    ScriptedMessage,
    ScriptedRequest,
    Step,
    SyncScriptedMessage,
    SyncScriptedRequest,
)
from tests.supervisors.model_based.scripted_actors import ScriptedActor, is_answer


class RuntimeModel(RandomActorTree):
    """Checks each call, each handler and each answer."""

    def add_instance(self, instance: InstanceRecord) -> None:
        name = instance.name
        if name == WORKER_POOL:
            self.instances.append(instance)
            return
        before = self.current.get(name)
        self.expect(before is None or not before.busy, "two instances at once", name)
        self.current[name] = instance
        self.instances.append(instance)

    @contextmanager
    def handling(  # noqa: C901
        self,
        instance: InstanceRecord,
        record: MessageRecord | None,
        *,
        gives_up: bool = False,
        counts: bool = True,
    ) -> Iterator[None]:
        """Mark `instance` as busy while a handler runs, and record how the handler ends."""
        name = instance.name
        self.expect(not instance.busy, "two messages at once", name)
        instance.busy = True
        instance.record, instance.gives_up = record, gives_up
        self.expect(NOT_CARRIED.get() in (None, name), "a variable of another actor", name)
        NOT_CARRIED.set(name)
        if record is not None:
            self.record_begin(instance, record)
        try:
            yield
        except trio.Cancelled as error:
            if gives_up:
                self.maybe_handled[name] += 1
            if record is not None:
                record.error = error
            raise
        except Exception as error:
            if counts and record is not None:
                record.error = error
                if is_answer(error):
                    record.answered = True
                    self.handled[name] += 1
                else:
                    self.failed[name] += 1
            raise
        except BaseException as error:
            if record is not None:
                record.error = error
            raise
        else:
            self.handled[name] += counts
        finally:
            instance.busy = False
            instance.record = instance.waits_for = None

    def record_begin(self, instance: InstanceRecord, record: MessageRecord) -> None:
        name = record.to
        record.begun += 1
        record.instance = instance
        if name in self.refs:
            self.expect(
                self.refs[name].cell.state is not ActorState.SUSPENDED, "handles suspended", name
            )
        if self.carries:
            self.expect(CARRIED.get() == record.carried, f"{record!r} has {CARRIED.get()}", name)
        if record.stashed and record.stash is instance.stash:  # a failed start may have lost some
            earlier = record.stash[: record.stash.index(record)]
            skipped = [other for other in earlier if other.in_order and not other.call_ended]
            self.expect(not skipped, f"{record!r} before {skipped}", name)
            record.stash.remove(record)
        again = record.begun > 1 or record.stashed
        self.expect(record.begun == 1 or record.stashed, f"{record!r} begun again", name)
        self.expect(
            not record.call_ended, f"{record!r} begun although its caller no longer waits", name
        )
        record.stashed = False
        if record.is_request:
            self.expect(self.now() <= record.due + EPSILON, f"{record!r} begun late", name)
        parent = record.parent
        while parent is not None and not parent.answered:
            self.expect(
                not parent.call_ended,
                f"{record!r} begun although a caller further up no longer waits",
                name,
            )
            parent = parent.parent
        if record.in_order and not again:
            self.expect(record.number > self.last_begun[name], f"{record!r} out of order", name)
            self.last_begun[name] = record.number

    def record_stash(self, actor: ScriptedActor, record: MessageRecord) -> None:
        """Record that a message was stashed."""
        record.stash = actor.instance.stash
        record.stash.append(record)
        cell = self.cell(actor.name)
        if cell is not None:
            returned = cell.mailbox.returned
            limit = self.policy_of(actor).max_stash
            self.expect(cell.stashed + returned <= limit, "a stash over its limit", actor.name)

    def record_publication(self, instance: InstanceRecord, number: int) -> None:
        self.expect(
            number > instance.last_publication,
            f"publication {number} after {instance.last_publication}",
            instance.name,
        )
        instance.last_publication = number

    # Calls.

    def new_record(
        self, to: str, parent: MessageRecord | None = None, due: float = inf
    ) -> MessageRecord:
        record = MessageRecord(self.number(), to, parent, due)
        self.records.append(record)
        return record

    def tell(self, to: str, steps: tuple[Step, ...]) -> None:
        record = self.new_record(to)
        kind = SyncScriptedMessage if record.number % 2 else ScriptedMessage
        room = self._has_room(to)
        accepted = self.ref(to).tell(kind(record, steps))
        self.expect(room in (None, accepted), f"tell returned {accepted}", to)
        if not accepted:
            record.refused = True
            self.refused_tells[to] += 1

    def _has_room(self, to: str) -> bool | None:
        """Return whether the mailbox accepts a message, or None if the model does not know."""
        cell = self.refs[to].cell if to in self.refs else None
        if cell is None or cell.mailbox.is_fed:
            return None
        if cell.mailbox.is_closed:
            return False
        depth = cell.mailbox.depth - cell.mailbox.returned
        return cell.policy.overflow is Overflow.DROP_OLDEST or depth < cell.mailbox.capacity

    async def send(self, to: str, steps: tuple[Step, ...]) -> None:
        record = self.new_record(to)
        kind = SyncScriptedMessage if record.number % 2 else ScriptedMessage
        record.carried = record.number
        token = CARRIED.set(record.number)
        try:
            await self.ref(to).send(kind(record, steps))
        except BaseException:
            record.refused = record.call_ended = True
            raise
        finally:
            CARRIED.reset(token)

    async def ask(
        self,
        to: str,
        steps: tuple[Step, ...],
        deadline: float,
        *,
        parent: MessageRecord | None = None,
        capped: bool = True,
    ) -> None:
        began = self.now()
        due = began + deadline
        if parent is not None and capped:
            due = max(began, min(due, parent.due))
        record = self.new_record(to, parent if capped else None, due)
        record.is_request = True
        kind = (ScriptedRequest, SyncScriptedRequest, GivingUpScriptedRequest)[record.number % 3]
        record.carried = record.number
        token = CARRIED.set(record.number)
        try:
            value = await self.ref(to).ask(kind(record, steps), deadline=deadline, capped=capped)
        except (ActorError, Refused) as error:
            self._record_end(record, None, error)
            raise
        except BaseException:
            record.call_ended = True
            raise
        else:
            self._record_end(record, value, None)
        finally:
            CARRIED.reset(token)

    def ask_later(
        self,
        actor: ScriptedActor,
        to: str,
        steps: tuple[Step, ...],
        deadline: float,
        parent: MessageRecord | None,
    ) -> None:
        record = self.new_record(to, parent)
        record.is_request = True
        record.carried = CARRIED.get()
        record.in_order = False  # it may wait until there is room for work
        instance = actor.instance
        with suppress(MailboxFull):
            actor.context.ask(
                self.ref(to),
                ScriptedRequest(record, steps),
                then=lambda outcome: AskSettled(instance, record, outcome),
                deadline=deadline,
            )
            instance.pending_asks += 1

    def settle(self, record: MessageRecord, outcome: Outcome[int]) -> None:
        """Record the outcome of a request of `context.ask`."""
        try:
            value: int | None = outcome.unwrap()
        except (ActorError, Refused) as error:
            self._record_end(record, None, error)
        else:
            self._record_end(record, value, None)

    def _record_end(
        self, record: MessageRecord, value: int | None, error: Exception | None
    ) -> None:
        now, name = self.now(), record.to
        self.expect(not record.call_ended, f"{record!r} settled twice", name)
        record.call_ended = True
        self.expect(
            now <= record.due + EPSILON,
            f"{record!r} settled after its deadline {vars(record)} {error!r}",
            name,
        )
        if value is not None:
            self.expect(record.value == value == record.number, f"{record!r}: {value}", name)
            return
        early = now < record.due - EPSILON
        ancestor: MessageRecord | None = record
        while ancestor is not None and early:  # the model does not know deadlines of `context.ask`
            early, ancestor = ancestor.in_order, ancestor.parent
        if record.value is not None and early:
            self.expect(False, f"{record!r} was answered, but got {error!r}", name)
        match error:
            case AskTimeout() if early:
                nested = record.parent is not None
                answered = record.error is not None and is_answer(record.error)
                self.expect(
                    nested or answered,
                    f"{record!r}, due {record.due:.6f}, got {error!r}; {vars(record)}",
                    name,
                )
            case Refused():
                self.expect(record.answered, f"{record!r} was not refused", name)

    async def publish(self) -> None:
        self.published += 1
        await self.topic.publish(Publication(self.published))
