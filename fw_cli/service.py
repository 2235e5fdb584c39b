"""The service: in the foreground, in the background, and additional workers."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import stat
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from importlib import import_module
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fw_cli.context import CommandContext
from fw_cli.errors import CommandFailed, is_defect
from fw_cli.output import as_json, say, show_json

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from fw_actors.config import Config
    from supervisors.service.background import ServiceStatus
    from supervisors.service.run import Service
    from supervisors.service.site_files import SitePaths
    from supervisors.service.tree import Inherited
    from web.listening import Bound


def _address(
    _ctx: click.Context, _option: click.Parameter, value: str | None
) -> tuple[str, int] | None:
    from fw_actors.config.parsing import UnusableValueError, bind

    try:
        return None if value is None else bind(value)
    except UnusableValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.pass_obj
def serve(context: CommandContext) -> None:
    """Serve the site in the foreground, until SIGTERM or Ctrl-C.

    Prints one line `ready <url>` on stdout when it accepts requests; the log goes to stderr. With
    `ops.processes` above 1 this process supervises that many processes, which all serve the site.
    """
    from fw_actors import __version__
    from supervisors.service import run
    from supervisors.service.site_files import ServeLock
    from supervisors.service.systemd import Notifier

    log = context.logger(service=True)
    systemd = Notifier.of(context.environ, os.getpid())
    announcer = run.Announcer(partial(_print_ready, context), systemd)
    warn_of_environment(context, log)
    paths, processes = _paths(context), context.config.processes
    lock, pid_file = ServeLock(paths.lock), run.OwnPidFile(paths.pid, __version__, processes)
    if processes == 1:
        open_service: run.OpenService = partial(open_site_service, context, log, front=True)
    else:
        from fw_cli.serving_process import load_modules, serve_assigned
        from supervisors.service.fork_server import ForkServer
        from supervisors.service.processes import open_processes

        load_modules(context.config)
        fork_server = ForkServer()
        fork_server.fork(serve_assigned)
        open_service = partial(
            open_processes,
            context.config,
            lock,
            log,
            run_folder=run_folder_of(context),
            patience=systemd.watchdog_seconds or inf,
            pid_file=pid_file,
            fork_server=fork_server,
        )
    run_logged(
        partial(
            run.serve,
            paths,
            open_service,
            version=__version__,
            announcer=announcer,
            log=log,
            lock=lock,
            pid_file=pid_file,
        ),
        log,
        tuned=processes == 1,
    )


@click.command()
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    callback=_address,
    help="Serve /metrics, /api/health and /api/ready there; port 0 selects a free port.",
)
@click.pass_obj
def worker(context: CommandContext, metrics: tuple[str, int] | None) -> None:
    """Send deliveries and mails, and run jobs, next to the service, until a signal.

    It opens no port unless `--metrics` is given.
    """
    from fw_actors import __version__
    from supervisors.service import run
    from supervisors.service.systemd import Notifier
    from web.listening import bind

    log = context.logger(service=True)
    warn_of_environment(context, log)
    bound = None if metrics is None else bind(*metrics, named="--metrics")
    opened = partial(open_site_service, context, log, front=False, bound=bound)
    run_logged(
        partial(
            run.work,
            _paths(context),
            opened,
            version=__version__,
            log=log,
            url=None if bound is None else bound.url,
            systemd=Notifier.of(context.environ, os.getpid()),
        ),
        log,
    )


@click.command()
@click.pass_obj
def start(context: CommandContext) -> None:
    """Start the service in the background, and wait until it is ready.

    If it is not ready after a minute, such as when it migrates a large store, the exit code is 1
    and the service continues to start. Exits 0 if it runs already.
    """
    from supervisors.service import background

    paths = _paths(context)
    before = background.status(paths)
    if before.state is background.RunState.RUNNING:
        say(f"already {_sentence(before)}")
        return
    say(_sentence(_start(context, paths)))
    _warn(context)


@click.command()
@click.pass_obj
def stop(context: CommandContext) -> None:
    """Stop the service, and wait until it has stopped.

    Work in progress has 10 seconds to finish. A service that does not end within 20 seconds is
    stopped at once, and is killed if that does not end it. Exits 0 if no service runs.
    """
    from supervisors.service import background

    click.echo(background.stop(_paths(context)).value)


@click.command()
@click.pass_obj
def restart(context: CommandContext) -> None:
    """Stop the service if it runs, and start it with the current configuration.

    A service is not stopped if the configuration or an app has errors, or if the database does not
    answer.
    """
    from supervisors.service import background

    paths = _paths(context)
    _check_startable(context.config)
    click.echo(background.stop(paths, "restart").value)
    say(_sentence(_start(context, paths)))
    _warn(context)


@click.command()
@as_json
@click.pass_obj
def status(context: CommandContext, as_json: bool) -> None:
    """Show whether the service runs, its process, its address, and its serving processes.

    The supervisor of several processes records their states; a process that does not answer it is
    `silent`. Exits 0 in every state; with --json, `state` is running, starting or stopped.
    """
    from supervisors.service import background

    now = background.status(_paths(context))
    if as_json:
        fields = {"state": now.state.value, "pid": now.pid, "url": now.url, "version": now.version}
        show_json(fields | (_shown_processes(now) if now.processes > 1 else {}))
        return
    say(_sentence(now))
    for each in now.serving:
        facts = [each.state, f"pid {each.pid}" if each.pid else "no pid"]
        facts += [f"restarts: {each.restarts}"] if each.restarts else []
        say(f"  process {each.number}: {', '.join(facts)}")


def _paths(context: CommandContext) -> SitePaths:
    from supervisors.service.site_files import SitePaths

    return SitePaths(context.folder)


def open_site_service(
    context: CommandContext,
    log: FilteringBoundLogger,
    *,
    front: bool,
    bound: Bound | None = None,
    inherited: Inherited | None = None,
) -> AbstractAsyncContextManager[Service]:
    """Return the service of the site; see `open_service`."""
    from supervisors.service.tree import open_service

    run_folder = run_folder_of(context)
    return open_service(
        context.config,
        log=log,
        front=front,
        bound=bound,
        run_folder=Path(run_folder) if run_folder else None,
        inherited=inherited,
    )


def run_folder_of(context: CommandContext) -> str:
    """Return systemd's RuntimeDirectory=, or nothing.

    It is visible to other processes, unlike a unit's private /tmp.
    """
    return context.environ.get("RUNTIME_DIRECTORY", "").split(":")[0]


def warn_of_environment(context: CommandContext, log: FilteringBoundLogger) -> None:
    """Log a warning for each ignored variable, and if the system still shows the secrets of the
    environment."""
    for sentence in context.config.warnings:
        log.warning("service.variable_ignored", hint=sentence)
    if context.exposed:
        log.warning(
            "service.environment_shows_secrets", hint="use files for secrets where possible"
        )


def run_logged(
    run: Callable[[], Awaitable[None]], log: FilteringBoundLogger, *, tuned: bool = True
) -> None:
    """Run to the end; a defect leaves its traceback in the log at any level.

    So does SIGABRT, by which systemd's watchdog ends a service that hangs: it prints the stack of
    each thread. `tuned`: tune the interpreter for a process that serves or delivers.
    """
    import trio

    from supervisors.service.logs import log_unhandled
    from supervisors.service.process import prepare

    if tuned:
        import_module("supervisors.service.tree")  # first, so that its modules are frozen too
        prepare()
    log_unhandled(log)
    with contextlib.suppress(ValueError, AttributeError, RuntimeError):  # stderr is not a file
        faulthandler.enable()
    try:
        trio.run(run)
    except (Exception, BaseExceptionGroup) as error:
        if not is_defect(error):
            raise
        log.error("service.crashed", exc_info=error)
        raise CommandFailed("the service has crashed; see its log") from error


def _start(context: CommandContext, paths: SitePaths) -> ServiceStatus:
    from supervisors.service import background

    # -P: modules in the site's folder must not hide those of this project; that folder is last on
    # the path.
    command = [sys.executable, "-P", "-m", "fw_cli", "serve"]
    environ = {**context.environ, "FW_CONFIG": str(context.config.file)}
    return background.start(paths, command, environ)


def _check_startable(config: Config) -> None:
    """Import and open what the configuration names, as a start does, so that an error leaves the
    running service alone.

    Raises: ConfigurationError.
    """
    from fw_actors.hashing.breached import BreachedPasswords
    from fw_actors.mail import load_method
    from fw_actors.ops.site import check_store, make_registry

    make_registry(config)
    if config.mail.transport == "method" and config.mail.method is not None:
        load_method(config.mail.method)
    if config.auth.breached_passwords is not None:
        BreachedPasswords(config.folder / config.auth.breached_passwords)
    check_store(config)


def _warn(context: CommandContext) -> None:
    """Print the ignored variables, and the stored secrets that the started service cannot use; its
    log has the same (C-52, C-132)."""
    from fw_actors.documents.vault import NOT_ENCRYPTED
    from fw_actors.ops.stored_secrets import secret_facts

    for sentence in context.config.warnings:
        say(f"warning: {sentence}")
    facts = context.on_site(lambda site: secret_facts(site, first_batches=True))
    for complaint in facts.complaints():
        say(f"warning: {complaint}")
    if any(reason != NOT_ENCRYPTED for _, _, reason in facts.unreadable):
        say(
            "Deliveries that need them fail permanently. Stop the service, put the key back "
            "(secret.key beside fw.json, or FW_SECRET_KEY), and start it again."
        )


def _print_ready(context: CommandContext, url: str) -> None:
    if context.config.deployment.log_format == "json" and _output_is_log():
        return  # the log has a line about it, and programs read that file as JSON
    with contextlib.suppress(OSError):  # the starting process may no longer read it
        click.echo(f"ready {url}")


def _output_is_log() -> bool:
    """Return whether output and log are one file, as for `fw start`."""
    try:
        output, log = os.fstat(sys.stdout.fileno()), os.fstat(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        return False
    return stat.S_ISREG(output.st_mode) and os.path.samestat(output, log)


def _shown_processes(now: ServiceStatus) -> dict[str, object]:
    return {
        "processes": now.processes,
        "ready": now.ready,
        "serving": [
            {"number": p.number, "state": p.state, "pid": p.pid, "restarts": p.restarts}
            for p in now.serving
        ],
    }


def _sentence(now: ServiceStatus) -> str:
    facts = [f"process {now.pid}"] if now.pid else []
    if now.processes > 1:
        ready = f"{now.ready} of " if now.serving else ""
        facts.append(f"{ready}{now.processes} serving processes{' ready' if ready else ''}")
    facts += [f"version {now.version}"] if now.version else []
    where = f" at {now.url}" if now.url else ""
    return f"{now.state.value}{where}" + (f" ({', '.join(facts)})" if facts else "")
