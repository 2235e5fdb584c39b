"""The context of a command: environment, working directory, and the site there."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from fw_cli.own_environment import is_secret

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from fw_actors.config import Config
    from fw_actors.documents.handle import Fw
    from fw_actors.ops.site import Site
    from fw_actors.rules.safe_output import Scrubber

T = TypeVar("T")

ADMINISTRATOR = "Administrator"
"""The user of commands without `--user` (C-103).

Not imported from `documents.permissions`, because SQLAlchemy would delay each command.
"""

BATCH_PAUSE_SECONDS: Final = 0.05
"""The pause between the batches of a command, so that writers of a running service wait briefly."""


@dataclass
class CommandContext:
    """The argument of every command: environment, folder, and the site's configuration."""

    environ: Mapping[str, str]
    cwd: Path
    exposed: bool = False
    """Whether the system still shows the initial environment of the process."""
    _config: Config | None = field(default=None, repr=False)

    @property
    def config(self) -> Config:
        """The site's configuration, read and validated at first use.

        Raises: ConfigurationError, with all problems at once.
        """
        if self._config is None:
            from fw_actors.config import load

            self._config = load(self.environ, self.cwd)
        return self._config

    def take_config(self, config: Config) -> None:
        """Use a configuration that the supervisor of several processes has read."""
        self._config = config

    @property
    def folder(self) -> Path:
        """The site's folder, available even if the configuration in it is invalid.

        Thus a running service can be stopped even after fw.json has become invalid.

        Raises: ConfigurationError if there is no site.
        """
        from fw_actors.config import site_file

        file = site_file(self.environ, self.cwd)
        return file.parent if file.is_file() else self.config.folder

    @property
    def debugging(self) -> bool:
        """Whether defects are shown with a traceback: FW_LOG_LEVEL=debug, once the configuration is
        read."""
        return self._config is not None and self._config.deployment.log_level == "debug"

    @property
    def scrubber(self) -> Scrubber:
        """Removes the site's secrets from the errors of a command.

        Before the configuration is read, or if it is invalid, it removes those of the environment.
        """
        if self._config is not None:
            return self._config.scrubber
        from fw_actors.rules.safe_output import Scrubber

        return Scrubber(v for name, v in self.environ.items() if is_secret(name))

    def logger(self, *, service: bool) -> FilteringBoundLogger:
        """Set up the process's log on stderr.

        A service uses the configured level; other commands log only warnings and errors, unless the
        level is debug.
        """
        from fw_actors.runtime import SystemClock
        from supervisors.service.logs import configure

        deployment = self.config.deployment
        quiet = not service and deployment.log_level == "info"
        return configure(
            style=deployment.log_format,
            level="warning" if quiet else deployment.log_level,
            clock=SystemClock(deployment.clock_offset),
            stream=sys.stderr,
            scrubber=self.config.scrubber,
            links=self.config.mail.transport == "log",
            process=None if self.config.place.is_alone else self.config.place.number,
            traced=self.config.ops.trace_context,
        )

    def on_site(self, use: Callable[[Site], Awaitable[T]], *, limited: bool = True) -> T:
        """Open the site, its store created or migrated, and return the result of `use`.

        `limited`: whether queries are limited to `ops.queryTimeoutSeconds`.
        """
        import trio

        self.logger(service=False)
        return trio.run(partial(_run_on_site, self.config, use, self.environ, limited=limited))

    def read(self, fn: Callable[[Site, Fw], T], user: str = ADMINISTRATOR) -> T:
        """Open the site, and return the result of `fn` in a read transaction of `user`.

        It has no time limit: it uses no reader of the service, it blocks no write, and Ctrl-C ends
        it. A command that lists all accounts has no filters that could be narrowed.
        """
        return self.on_site(lambda site: site.read(user, partial(fn, site)), limited=False)

    def write(self, fn: Callable[[Site, Fw], T], user: str = ADMINISTRATOR) -> T:
        """Open the site, and return the result of `fn` in a write transaction of `user`."""
        return self.on_site(lambda site: site.write(user, partial(fn, site)))


async def _run_on_site(
    config: Config,
    use: Callable[[Site], Awaitable[T]],
    environ: Mapping[str, str],
    *,
    limited: bool,
) -> T:
    from fw_actors.ops.site import open_site

    with _in_trace_of(environ) if config.ops.trace_context else nullcontext():
        async with open_site(config, limited=limited) as site:
            return await use(site)


def _in_trace_of(environ: Mapping[str, str]) -> AbstractContextManager[None]:
    """Continue the trace of the command's caller, if the environment has one."""
    from fw_actors.tracing import in_trace, read_context

    state = environ.get("TRACESTATE", "")
    return in_trace(read_context([environ.get("TRACEPARENT", "")], [state]))
