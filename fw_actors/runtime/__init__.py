"""The actor runtime: actors, refs, keyed pools, deadlines. See docs/runtime.md."""

from fw_actors.runtime.actor import Actor, Context, KeyedActor, KeyedContext
from fw_actors.runtime.clock import (
    Clock,
    Entropy,
    SeededEntropy,
    SystemClock,
    SystemEntropy,
    TrioClock,
)
from fw_actors.runtime.errors import (
    ActorError,
    ActorFailed,
    ActorGone,
    AlreadyAnswered,
    AskCycle,
    AskTimeout,
    FailedTooOften,
    Faults,
    MailboxFull,
    NotHandled,
    Refused,
)
from fw_actors.runtime.keyed_pool import KeyedPool
from fw_actors.runtime.mailbox import DeadLetter, DeadLetterReason, MailboxPolicy, Overflow
from fw_actors.runtime.membership import Listener, Membership, MemberSnapshot, TopicOverflow
from fw_actors.runtime.messages import Message, Request, handles
from fw_actors.runtime.operations import Timer
from fw_actors.runtime.ref import ActorRef, KeyedRef, Ref
from fw_actors.runtime.reply import PendingReply
from fw_actors.runtime.snapshot import Inspection, NodeSnapshot, RuntimeSnapshot
from fw_actors.runtime.supervision import Down, RestartIntensity, Up, Watch
from fw_actors.runtime.system import Log, Runtime, SilentLog, StderrLog, open_runtime
from fw_actors.runtime.topics import EventKind, EventTopic, RuntimeEvent, Topic, TopicSnapshot
from fw_actors.runtime.tracing import MessageTrace, TraceHooks, TraceOutcome
from fw_actors.runtime.worker_pool import WorkerPool

__all__ = [
    "Actor",
    "ActorError",
    "ActorFailed",
    "ActorGone",
    "ActorRef",
    "AlreadyAnswered",
    "AskCycle",
    "AskTimeout",
    "Clock",
    "Context",
    "DeadLetter",
    "DeadLetterReason",
    "Down",
    "Entropy",
    "EventKind",
    "EventTopic",
    "FailedTooOften",
    "Faults",
    "Inspection",
    "KeyedActor",
    "KeyedContext",
    "KeyedPool",
    "KeyedRef",
    "Listener",
    "Log",
    "MailboxFull",
    "MailboxPolicy",
    "MemberSnapshot",
    "Membership",
    "Message",
    "MessageTrace",
    "NodeSnapshot",
    "NotHandled",
    "Overflow",
    "PendingReply",
    "Ref",
    "Refused",
    "Request",
    "RestartIntensity",
    "Runtime",
    "RuntimeEvent",
    "RuntimeSnapshot",
    "SeededEntropy",
    "SilentLog",
    "StderrLog",
    "SystemClock",
    "SystemEntropy",
    "Timer",
    "Topic",
    "TopicOverflow",
    "TopicSnapshot",
    "TraceHooks",
    "TraceOutcome",
    "TrioClock",
    "Up",
    "Watch",
    "WorkerPool",
    "handles",
    "open_runtime",
]
