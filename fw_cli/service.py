"""The service: in the foreground, in the background, and additional workers."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fw_cli.context import CommandContext
from fw_cli.errors import CommandFailed, is_defect
from fw_cli.output import as_json, say, show_json

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from supervisors.service.background import ServiceStatus
    from supervisors.service.run import Service
    from supervisors.service.site_files import SitePaths


@click.command()
@click.pass_obj
def serve(context: CommandContext) -> None:
    """Serve the site in the foreground, until SIGTERM or Ctrl-C.

    Prints one line `ready <url>` on stdout when it accepts requests; the log goes to stderr.
    """
    from fw_actors.version import __version__
    from supervisors.service import run

    log = context.logger(service=True)
    announcer = run.Announcer(_print_ready, context.environ.get("NOTIFY_SOCKET"))
    _warn_of_exposed(context, log)
    _run_logged(
        partial(
            run.serve,
            _paths(context),
            partial(_open, context, log, front=True),
            version=__version__,
            announcer=announcer,
            log=log,
        ),
        log,
    )


@click.command()
@click.pass_obj
def worker(context: CommandContext) -> None:
    """Deliver webhooks and mail from the same store, beside the service, until a signal."""
    from fw_actors.version import __version__
    from supervisors.service import run

    log = context.logger(service=True)
    _warn_of_exposed(context, log)
    opened = partial(_open, context, log, front=False)
    _run_logged(partial(run.work, opened, version=__version__, log=log), log)


@click.command()
@click.pass_obj
def start(context: CommandContext) -> None:
    """Start the service in the background, and wait until it is ready."""
    from supervisors.service import background

    paths = _paths(context)
    before = background.status(paths)
    if before.state is background.RunState.RUNNING:
        say(f"{_sentence(before)} already")
        return
    say(_sentence(_start(context, paths)))


@click.command()
@click.pass_obj
def stop(context: CommandContext) -> None:
    """Stop the service, and wait until it has stopped."""
    from supervisors.service import background

    click.echo(background.stop(_paths(context)).value)


@click.command()
@click.pass_obj
def restart(context: CommandContext) -> None:
    """Stop the service if it runs, and start it with the current configuration."""
    from supervisors.service import background

    paths = _paths(context)
    context.config  # noqa: B018 - report configuration errors before the stop
    click.echo(background.stop(paths).value)
    say(_sentence(_start(context, paths)))


@click.command()
@as_json
@click.pass_obj
def status(context: CommandContext, as_json: bool) -> None:
    """Show whether the service runs, its process, and its address."""
    from supervisors.service import background

    now = background.status(_paths(context))
    if as_json:
        show_json(
            {"state": now.state.value, "pid": now.pid, "url": now.url, "version": now.version}
        )
    else:
        say(_sentence(now))


def _paths(context: CommandContext) -> SitePaths:
    from supervisors.service.site_files import SitePaths

    return SitePaths(context.folder)


def _open(
    context: CommandContext, log: FilteringBoundLogger, *, front: bool
) -> AbstractAsyncContextManager[Service]:
    from supervisors.service.tree import open_service

    # systemd's RuntimeDirectory=: visible to other processes, unlike a unit's private /tmp.
    run_folder = context.environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    return open_service(
        context.config, log=log, front=front, run_folder=Path(run_folder) if run_folder else None
    )


def _warn_of_exposed(context: CommandContext, log: FilteringBoundLogger) -> None:
    if context.exposed:
        log.warning(
            "service.environment_shows_secrets", hint="use files for secrets where possible"
        )


def _run_logged(run: Callable[[], Awaitable[None]], log: FilteringBoundLogger) -> None:
    """Run to the end; a defect leaves its traceback in the log at any level."""
    import trio

    from supervisors.service.logs import log_unhandled
    from supervisors.service.process import prepare

    prepare()
    log_unhandled(log)
    try:
        trio.run(run)
    except (Exception, BaseExceptionGroup) as error:
        if not is_defect(error):
            raise
        log.error("service.crashed", exc_info=error)
        raise CommandFailed("the service has crashed; see its log") from error


def _start(context: CommandContext, paths: SitePaths) -> ServiceStatus:
    from supervisors.service import background

    # -P: modules in the site's folder must not hide ours; that folder is last on the path.
    command = [sys.executable, "-P", "-m", "fw_cli", "serve"]
    environ = {**context.environ, "FW_CONFIG": str(context.config.file)}
    return background.start(paths, command, environ)


def _print_ready(url: str) -> None:
    with contextlib.suppress(OSError):  # the starting process may not listen any more
        click.echo(f"ready {url}")


def _sentence(now: ServiceStatus) -> str:
    facts = [f"process {now.pid}"] if now.pid else []
    facts += [f"version {now.version}"] if now.version else []
    where = f" at {now.url}" if now.url else ""
    return f"{now.state.value}{where}" + (f" ({', '.join(facts)})" if facts else "")
