"""`fw shell`: a Python prompt with `fw`, whose inputs are transactions."""

from __future__ import annotations

import code
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from functools import partial
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, Final

import click

from fw_cli.context import ADMINISTRATOR, CommandContext
from fw_cli.errors import CommandFailed
from fw_cli.examples import examples
from fw_cli.output import counted
from fw_cli.values import USER

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw
    from fw_actors.ops.site import Site

_HISTORY: Final = "shell.history"
_MAX_HISTORY: Final = 1000
_OWNER_ONLY: Final = 0o600
_CONTINUED: Final = "... "
_BYTE_ORDER_MARK: Final = "\ufeff"


@click.command(epilog=examples("fw shell", "fw shell --user ann", "fw shell --commit < fix.txt"))
@click.option(
    "--commit", is_flag=True, help="Commit each input; by default each one is rolled back."
)
@click.option(
    "--user", default=ADMINISTRATOR, type=USER, show_default=True,
    help="The user whose permissions apply.",
)  # fmt: skip
@click.pass_obj
def shell(context: CommandContext, commit: bool, user: str) -> None:
    """Open a Python prompt, in which `fw` is the site.

    Each input runs in its own transaction, which is rolled back unless --commit is given. begin()
    opens one for several inputs, commit() and rollback() end it; while it is open, writes of the
    service wait for it on SQLite. The history is in data/shell.history, readable only by the site's
    user. If stdin is not a terminal, its lines are run, and the exit code is 1 if one fails.
    """
    import trio

    from fw_actors.ops.site import open_site

    async def run() -> int:
        # Inline: inputs run on the main thread, where Ctrl-C reaches them.
        async with open_site(context.config, inline=True) as site:
            await site.read(user, lambda fw: fw.user)  # refuses an unknown user at once
            session = ShellSession(site, user, context, commit=commit)
            with _history(context.config.folder / "data" / _HISTORY, session.names):
                await session.run()
            return session.failed

    context.logger(service=False)
    interactive = sys.stdin.isatty()  # asked now, because exit() closes stdin
    failed = trio.run(run)
    if failed and not interactive:
        raise CommandFailed(f"{counted(failed, 'input')} failed")


class _TransactionCommand(Enum):
    """The transaction command that an input called: begin, commit or rollback."""

    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"


class _RolledBackInput(Exception):
    """Raised to roll back a transaction whose failure or end was already reported."""


class _EndOfShell(Exception):
    """Raised by exit() and quit(), and at the end of stdin inside a transaction."""


class ShellSession:
    """A prompt: reads inputs, and runs each in its transaction."""

    def __init__(self, site: Site, user: str, context: CommandContext, *, commit: bool) -> None:
        self._site, self._user, self._context, self._commit = site, user, context, commit
        self._compile = code.compile_command
        self._command: _TransactionCommand | None = None
        self.failed = 0
        self.names: dict[str, Any] = {
            "__name__": "__console__",
            "fw": None,
            **{
                command.value: partial(self._request_command, command)
                for command in _TransactionCommand
            },
        }

    async def run(self) -> None:
        """Read and run inputs until the end of stdin, exit() or quit()."""
        if sys.stdin.isatty():
            kept = "committed" if self._commit else "rolled back"
            click.echo(
                f"fw is the site, for {self._user}. Each input is {kept}; begin(), commit() and "
                "rollback() for several. Ctrl-D ends."
            )
        try:
            while True:
                source = self._read("fw> " if not self._commit else "fw (commit)> ")
                if source is None:
                    return
                await self._run_alone(source)
                if self._take_command() is _TransactionCommand.BEGIN:
                    await self._run_in_transaction()
        except _EndOfShell:
            return

    async def _run_alone(self, source: CodeType) -> None:
        """Run an input in its own transaction."""
        run = self._site.write if self._commit else self._site.rollback
        with self._reporting():
            await run(self._user, partial(self._execute, source))

    async def _run_in_transaction(self) -> None:
        """Run inputs in one transaction until commit() or rollback()."""
        with self._reporting():
            await self._site.write(self._user, self._run_inputs)
            click.echo("committed")

    def _run_inputs(self, fw: Fw) -> None:
        while True:
            source = self._read("fw (open)> ")
            if source is None:
                click.echo("rolled back")
                raise _EndOfShell
            try:
                with fw.tx.savepoint():  # the writes of a failed input are undone
                    self._execute(source, fw)
            except _RolledBackInput:
                continue
            command = self._take_command()
            if command is _TransactionCommand.COMMIT:
                return
            if command is _TransactionCommand.ROLLBACK:
                click.echo("rolled back")
                raise _RolledBackInput

    def _execute(self, source: CodeType, fw: Fw) -> None:
        """Run an input; if it fails, report this and roll back its transaction.

        A transaction command of a failed input has no effect.
        """
        self.names["fw"] = fw
        try:
            exec(source, self.names)  # the purpose of `fw shell`  # nosec B102
        except SystemExit:
            raise _EndOfShell from None
        except BaseException as error:
            self._command = None
            if isinstance(error, KeyboardInterrupt):
                click.echo("interrupted", err=True)
            else:
                self._report(error)
            raise _RolledBackInput from None

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Report a failure of the transaction itself, such as a full disk at its commit."""
        try:
            yield
        except (_RolledBackInput, _EndOfShell) as end:
            if isinstance(end, _EndOfShell):
                raise
        except (Exception, BaseExceptionGroup) as error:
            self._report(error)

    def _report(self, error: BaseException) -> None:
        """Print an error without secrets; for a defect also the traceback, beginning at the
        input."""
        import traceback

        from fw_actors.errors import FwError
        from fw_actors.rules.safe_output import escaped

        self.failed += 1
        if isinstance(error, FwError):
            text = f"{type(error).__name__}: {error}"
        else:
            trace = error.__traceback__
            text = "".join(traceback.format_exception(type(error), error, trace and trace.tb_next))
        for line in self._context.scrubber.scrub_known(text).splitlines():
            click.echo(escaped(line), err=True)

    def _request_command(self, command: _TransactionCommand) -> None:
        self._command = command

    def _take_command(self) -> _TransactionCommand | None:
        command, self._command = self._command, None
        return command

    def _read(self, prompt: str) -> CodeType | None:
        """Return the next complete input, compiled; None at the end of stdin."""
        lines: list[str] = []
        while True:
            try:
                line = _line(_CONTINUED if lines else prompt)
            except KeyboardInterrupt:
                click.echo()
                lines = []
                continue
            if line is None and not lines:
                return None
            lines.append(line or "")
            source = "\n".join(lines)
            try:
                compiled = self._compile(source if line is not None else source + "\n", "<input>")
            except (SyntaxError, ValueError, OverflowError) as error:
                self._report_syntax_error(error)
                lines = []
                continue
            if compiled is not None:
                return compiled
            if line is None:
                self._report_syntax_error(SyntaxError("the last input is not complete"))
                return None

    def _report_syntax_error(self, error: BaseException) -> None:
        import traceback

        self.failed += 1
        click.echo("".join(traceback.format_exception_only(error)).rstrip(), err=True)


def _line(prompt: str) -> str | None:
    """Return a line without its end; None at the end of stdin. Prompts are printed only on a
    terminal."""
    if sys.stdin.isatty():
        try:
            return input(prompt)
        except EOFError:
            click.echo()
            return None
    line = sys.stdin.readline()
    return line.rstrip("\n").removeprefix(_BYTE_ORDER_MARK) if line else None


@contextmanager
def _history(file: Path, names: dict[str, Any]) -> Iterator[None]:
    """Provide history and completion on a terminal; only the owner can read the file."""
    if not sys.stdin.isatty():
        yield
        return
    try:
        import readline
        import rlcompleter
    except ModuleNotFoundError:  # a Python that was built without it
        yield
        return
    readline.set_completer(rlcompleter.Completer(names).complete)
    readline.parse_and_bind("tab: complete")
    readline.set_history_length(_MAX_HISTORY)
    with suppress(OSError):  # a prompt is useful without a history too
        file.parent.mkdir(mode=0o700, exist_ok=True)  # missing if the database is on a server
        file.touch(mode=_OWNER_ONLY)
        file.chmod(_OWNER_ONLY)
        readline.read_history_file(file)
    try:
        yield
    finally:
        with suppress(OSError):
            readline.write_history_file(file)
