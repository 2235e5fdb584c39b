"""Keeps the service stopped while a command changes data that no other process may use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fw_cli.context import CommandContext
from fw_cli.errors import CommandFailed


@contextmanager
def service_stopped(context: CommandContext, purpose: str) -> Iterator[None]:
    """Hold the site's lock, so that no service runs or starts meanwhile.

    `purpose` completes "before …". Raises: CommandFailed if the service, or a worker of this
    machine, runs.
    """
    import time

    from supervisors.service.site_files import (
        LOCK_ATTEMPTS,
        LOCK_EVERY_SECONDS,
        ServeLock,
        SitePaths,
        remove,
        running_workers,
    )

    paths = SitePaths(context.folder)
    paths.prepare()
    with ServeLock(paths.lock) as lock:
        for _ in range(LOCK_ATTEMPTS):
            if lock.acquire():
                break
            time.sleep(LOCK_EVERY_SECONDS)
        else:
            raise CommandFailed(
                f"the service of {paths.folder} is running: stop it with `fw stop`, and every "
                f"worker, before {purpose}"
            )
        remove(paths.pid)  # of a killed service: the lock would make it valid again
        if workers := running_workers(paths):
            pids = ", ".join(str(worker.process.pid) for worker in workers)
            raise CommandFailed(
                f"workers of {paths.folder} are running (process {pids}): stop every worker before "
                f"{purpose}"
            )
        yield
