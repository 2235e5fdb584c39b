"""The actor runtime: actors, refs, keyed pools, deadlines. See docs/runtime.md."""

from fw_actors.runtime.actor import Actor, Context
from fw_actors.runtime.clock import Clock, SystemClock, TrioClock
from fw_actors.runtime.dead_letters import DeadLetter, Reason
from fw_actors.runtime.entropy import Entropy, SeededEntropy, SystemEntropy
from fw_actors.runtime.faults import (
    ActorFailed,
    ActorGone,
    AlreadyAnswered,
    AskCycle,
    AskTimeout,
    MailboxFull,
    NotHandled,
    RuntimeFault,
)
from fw_actors.runtime.inspection import Inspection, NodeSnapshot, RuntimeSnapshot
from fw_actors.runtime.keyed_pool import KeyedPool
from fw_actors.runtime.life import Down
from fw_actors.runtime.log import Log, SilentLog
from fw_actors.runtime.mailbox import MailboxPolicy, Overflow
from fw_actors.runtime.messages import Message, Request, handles
from fw_actors.runtime.reference import ActorRef, KeyedRef, Ref
from fw_actors.runtime.reply import Reply
from fw_actors.runtime.runtime import Runtime, open_runtime
from fw_actors.runtime.side import Timer, Watch

__all__ = [
    "Actor",
    "ActorFailed",
    "ActorGone",
    "ActorRef",
    "AlreadyAnswered",
    "AskCycle",
    "AskTimeout",
    "Clock",
    "Context",
    "DeadLetter",
    "Down",
    "Entropy",
    "Inspection",
    "KeyedPool",
    "KeyedRef",
    "Log",
    "MailboxFull",
    "MailboxPolicy",
    "Message",
    "NodeSnapshot",
    "NotHandled",
    "Overflow",
    "Reason",
    "Ref",
    "Reply",
    "Request",
    "Runtime",
    "RuntimeFault",
    "RuntimeSnapshot",
    "SeededEntropy",
    "SilentLog",
    "SystemClock",
    "SystemEntropy",
    "Timer",
    "TrioClock",
    "Watch",
    "handles",
    "open_runtime",
]
