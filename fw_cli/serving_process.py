"""A process of a service with several; the supervisor's fork server forks it.

As a program, this is a fork server that replaces one that has died. It is not a command: its
configuration comes from the supervisor.
"""

from __future__ import annotations

import socket
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from fw_actors.config import Config
from fw_cli.context import CommandContext
from fw_cli.errors import command_error, is_store_away
from fw_cli.service import open_site_service, run_logged
from supervisors.service.control_channel import Assignment
from supervisors.service.fork_server import serve_assignments
from supervisors.service.process import STORE_AWAY


def main() -> None:
    """Fork processes until the supervisor ends; the exit code is 1 after an error."""
    serve_assignments(_load, serve_assigned)


def load_modules(config: Config) -> None:
    """Import the modules of a process, and read the files of its pages, before it is forked.

    The modules that apps import are among them: an upgrade replaces the files while the service
    runs, and a process that replaces another must not mix those of two versions.
    """
    import_module("supervisors.service.tree")
    import_module("fw_actors.app")
    import_module("web.pages.rendering").read_files()
    if config.sqlite_file is None:
        import_module("fw_actors.store.postgres")


def serve_assigned(assignment: Assignment) -> NoReturn:
    """Serve until the supervisor requests the end; the exit code is 1 after an error, and
    `STORE_AWAY` if the store does not answer when it starts."""
    context = CommandContext({"RUNTIME_DIRECTORY": assignment.run_folder}, Path.cwd())
    try:
        _serve(context, assignment)
    except (Exception, BaseExceptionGroup) as error:
        _exit_with(error, context)
    sys.exit(0)


def _load(assignment: Assignment) -> None:
    try:
        load_modules(assignment.config())
    except Exception as error:
        _exit_with(error, CommandContext({}, Path.cwd()))


def _exit_with(error: BaseException, context: CommandContext) -> NoReturn:
    ended = command_error(error, debugging=context.debugging, scrubber=context.scrubber)
    getattr(ended, "show", str)()
    sys.exit(STORE_AWAY if is_store_away(error) else 1)


def _serve(context: CommandContext, assignment: Assignment) -> None:
    from fw_actors.webhooks.subscriptions import SharedSubscriptions
    from supervisors.service.control_channel import PeerProcesses
    from supervisors.service.run import serve_process
    from supervisors.service.tree import Inherited
    from web.listening import Bound

    context.take_config(assignment.config())
    place = assignment.place
    log = context.logger(service=True)
    peers = PeerProcesses(place)
    inherited = Inherited(
        Bound(socket.socket(fileno=assignment.listening), assignment.url),
        SharedSubscriptions(assignment.subscriptions, place),
        peers,
        assignment.alone,
    )
    open_service = partial(open_site_service, context, log, front=True, inherited=inherited)
    run_logged(partial(serve_process, assignment, peers, open_service, log), log)


if __name__ == "__main__":
    main()
