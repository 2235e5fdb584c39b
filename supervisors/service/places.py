"""Where the processes of one site find each other: the files in its data folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from supervisors.service.refusals import UnusableDataFolder


@dataclass(frozen=True)
class Places:
    """The files of a site's service. `folder` is the folder of fw.json (interface §5).

    `run_folder` is where what lives no longer than the process lies; None: the system's for
    temporary files.
    """

    folder: Path
    run_folder: Path | None = None

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def lock(self) -> Path:
        """Locked by the one process that serves the site; never removed, so that it stays one."""
        return self.data / "serve.lock"

    @property
    def pid(self) -> Path:
        """What the serving process says of itself."""
        return self.data / "serve.json"

    @property
    def log(self) -> Path:
        """What a background service writes on stdout and stderr."""
        return self.data / "serve.log"

    @property
    def console(self) -> Path:
        """Names the socket of the running service's console; see `socket_place`."""
        return self.data / "console.address"

    def prepare(self) -> None:
        """Make the data folder, for its owner only, when it is missing.

        Raises: UnusableDataFolder.
        """
        try:
            self.data.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise UnusableDataFolder(self.data, error) from error
