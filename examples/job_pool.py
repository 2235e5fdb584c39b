"""A pool of jobs: four at a time, each within its deadline; a job that crashes fails alone.

python -m examples.job_pool
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from outcome import Outcome

from fw_actors.runtime import (
    Actor,
    ActorError,
    MailboxPolicy,
    Message,
    Overflow,
    PendingReply,
    Refused,
    Request,
    SystemClock,
    SystemEntropy,
    handles,
    open_runtime,
)
from supervisors import actor_child, open_supervisor


class PoolJobFailed(Refused):
    """Raised by `ask` if the job raised an error or took too long."""


class PoolJob(Request[str], frozen=True):
    """An async function to call, and the seconds that it may take."""

    run: Callable[[], Awaitable[str]]
    seconds: float


class PoolJobDone(Message, frozen=True):
    reply: PendingReply[str]
    outcome: Outcome[str]


class Jobs(Actor):
    """Runs jobs beside each other. With four it takes no further one from its mailbox.

    So the callers of the others wait, first in the mailbox and then for room in it.
    """

    mailbox = MailboxPolicy(capacity=100, overflow=Overflow.WAIT, max_work=4)

    def __init__(self) -> None:
        self.done = self.failed = 0

    @handles(PoolJob)
    def job(self, message: PoolJob) -> PendingReply[str]:
        reply: PendingReply[str] = self.context.keep_reply()
        self.context.work(self._run, message, then=lambda outcome: PoolJobDone(reply, outcome))
        return reply

    @handles(PoolJobDone)
    def finished(self, message: PoolJobDone) -> None:
        self.done += 1
        try:
            message.reply.answer(message.outcome.unwrap())
        except Exception as error:
            self.failed += 1
            message.reply.fail(PoolJobFailed(self.context.one_line(error)))

    def describe(self) -> dict[str, object]:
        return {"done": self.done, "failed": self.failed}

    async def _run(self, job: PoolJob) -> str:
        with trio.fail_after(job.seconds):
            return await job.run()


async def main() -> None:
    """Run ten jobs, of which some crash or take too long."""

    async def report(number: int) -> None:
        async def run() -> str:
            await trio.sleep(number / 10)
            if number % 4 == 0:
                raise ValueError(f"{number} is divisible by 4")
            return f"job {number} is done"

        try:
            print(await jobs.ask(PoolJob(run, seconds=0.8), deadline=5.0))
        except (PoolJobFailed, ActorError) as error:
            print(f"job {number}: {error}")

    async with open_runtime(clock=SystemClock(), entropy=SystemEntropy()) as runtime:
        jobs = runtime.ref("jobs", of=Jobs)
        async with (
            open_supervisor(runtime, "main", [actor_child("jobs", Jobs)]),
            trio.open_nursery() as nursery,
        ):
            for number in range(1, 11):
                nursery.start_soon(report, number)


if __name__ == "__main__":
    trio.run(main)
