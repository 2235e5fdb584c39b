"""The program of one of several processes of a service; `fw serve` starts it.

It is not a command: its configuration comes from the supervisor, on the standard input.
"""

from __future__ import annotations

import socket
import sys
from functools import partial
from pathlib import Path
from typing import NoReturn

from fw_cli.context import CommandContext
from fw_cli.errors import command_error
from fw_cli.service import open_site_service, run_logged
from supervisors.service.control_channel import Assignment, read_assignment


def main() -> NoReturn:
    """Serve until the supervisor requests the end; the exit code is 1 after an error."""
    assignment = read_assignment(sys.stdin.buffer)
    context = CommandContext({"RUNTIME_DIRECTORY": assignment.run_folder}, Path.cwd())
    try:
        _serve(context, assignment)
    except (Exception, BaseExceptionGroup) as error:
        ended = command_error(error, debugging=context.debugging, scrubber=context.scrubber)
        getattr(ended, "show", str)()
        sys.exit(1)
    sys.exit(0)


def _serve(context: CommandContext, assignment: Assignment) -> None:
    from fw_actors.webhooks.subscriptions import SharedSubscriptions
    from supervisors.service.control_channel import Siblings
    from supervisors.service.run import serve_process
    from supervisors.service.tree import Inherited
    from web.listening import Bound

    context.take_config(assignment.config())
    place = assignment.place
    log = context.logger(service=True)
    siblings = Siblings(place)
    inherited = Inherited(
        Bound(socket.socket(fileno=assignment.listening), assignment.url),
        SharedSubscriptions(assignment.subscriptions, place),
        siblings,
        assignment.alone,
    )
    open_service = partial(open_site_service, context, log, front=True, inherited=inherited)
    run_logged(partial(serve_process, assignment, siblings, open_service, log), log)


if __name__ == "__main__":
    main()
