"""Where the variables of a site come from: the process first, then `.env` (interface §6).

An empty value counts as unset, and wins over `.env` all the same: it switches the fact off. What
is wrong with a value is one sentence with the variable's name; no sentence shows a value, unless
it is one of a few words to choose from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from fw_actors.config.key_file import (
    CREDENTIAL,
    KEY_FILE_VARIABLE,
    KEY_VARIABLE,
    OWN_FILE,
    UnusableKeyFileError,
    credential_file,
    read_key,
)
from fw_actors.config.model import VAULT_KEY, Secrets
from fw_actors.config.values import UnusableValueError, judge_characters
from fw_actors.rules.nearest import nearest
from fw_actors.rules.policy_kinds import Kind

T = TypeVar("T")
D = TypeVar("D")

_PREFIX: Final = "FW_"
_SECRET_NAME: Final = re.compile(r"FW_SECRET_([A-Z0-9_]+)\Z")
CONFIG_VARIABLE: Final = "FW_CONFIG"
VARIABLES: Final = (
    CONFIG_VARIABLE,
    "FW_ARGON2",
    "FW_BIND",
    "FW_CLOCK_OFFSET",
    "FW_DATABASE",
    "FW_LOG",
    "FW_LOG_LEVEL",
    "FW_LOGIN_DEMO_PASSWORD",
    "FW_LOGIN_DEMO_USER",
    "FW_LOGIN_NOTICE",
    "FW_MAIL_FROM",
    "FW_MAIL_METHOD",
    "FW_MAIL_TRANSPORT",
    "FW_MODE",
    "FW_PUBLIC_URL",
    "FW_SMTP_HOST",
    "FW_SMTP_PASSWORD",
    "FW_SMTP_PORT",
    "FW_SMTP_SECURITY",
    "FW_SMTP_USER",
    "FW_TRUST_PROXY",
    "FW_WEBHOOKS",
)


@dataclass(frozen=True)
class Source:
    """One place of variables; `label` names it in sentences."""

    label: str
    values: Mapping[str, str]


class Environment:
    """The variables of a site, read one by one; collects what is wrong with them."""

    def __init__(self, process: Mapping[str, str], file: Source) -> None:
        """`process` is the process's environment; `file` holds what `.env` says."""
        self._sources = (Source("environment", process), file)
        self.problems: list[str] = []

    def given(self, name: str) -> str | None:
        """Return a variable's value as it stands, "" when it is switched off, None when unset."""
        source = self._source_of(name)
        return None if source is None else source.values[name]

    def take(self, name: str, parse: Callable[[str], T], default: D) -> T | D:
        """Return a variable's value as `parse` reads it, `default` when it is unset or unusable.

        `parse` raises UnusableValueError; that becomes a problem.
        """
        value = self.given(name)
        if not value:
            return default
        try:
            judge_characters(value.strip())
            return parse(value.strip())
        except UnusableValueError as error:
            self.refuse(name, str(error))
            return default

    def take_verbatim(self, name: str, kind: Kind) -> str | None:
        """Return a variable's value exactly as it stands, None when it is unset or unusable."""
        value = self.given(name)
        if not value:
            return None
        problem = kind.problem(value)
        if problem is not None:
            self.refuse(name, problem)
            return None
        return value

    def refuse(self, name: str, sentence: str) -> None:
        """Note what is wrong with a variable; `sentence` goes on after its name."""
        source = self._source_of(name) or self._sources[0]
        self.problems.append(f"{source.label}: {name} {sentence}")

    def secrets(self, folder: Path) -> Secrets:
        """Return FW_SECRET_* of the process; those in `.env` are ignored (interface §6).

        `folder`: the site; the key of Vault fields may come from a file, see `key_file`.
        """
        values = {}
        for name, value in self._sources[0].values.items():
            secret = _SECRET_NAME.match(name)
            if secret is None or name == KEY_FILE_VARIABLE:
                continue
            if _encodes(value):
                values[secret[1].lower()] = value
            else:
                self.refuse(name, "must be valid UTF-8")
        file = self._key_file(folder)
        if file is None:
            return Secrets(values)
        try:
            key = read_key(file, guarded=file != credential_file(self._sources[0].values))
        except UnusableKeyFileError as error:
            self.problems.append(str(error))
            return Secrets(values)
        return Secrets({**values, VAULT_KEY: key}, file)

    def _key_file(self, folder: Path) -> Path | None:
        """Return the file to read the key from; None when the environment has it, or nobody."""
        process = self._sources[0].values
        named, credential = process.get(KEY_FILE_VARIABLE), credential_file(process)
        given = {
            KEY_VARIABLE: process.get(KEY_VARIABLE),
            KEY_FILE_VARIABLE: named,
            f"systemd's credential {CREDENTIAL}": credential,
        }
        several = [name for name, value in given.items() if value]
        if len(several) > 1:
            self.problems.append(
                f"{self._sources[0].label}: the key is given by {' and '.join(several)}; "
                "give it by one of them"
            )
            return None
        if named:
            return folder / named
        if credential is not None:
            return credential
        own = folder / OWN_FILE
        # A variable that is there and empty switches the key off.
        return own if KEY_VARIABLE not in process and own.exists() else None

    def warnings(self) -> Iterator[str]:
        """Yield a sentence for each variable of ours that is ignored, in a fixed order."""
        process, file = self._sources
        for name in sorted(file.values):
            if name.startswith("FW_SECRET_"):
                yield (
                    f"{file.label}: {name} is ignored; secrets are read from the process's "
                    "environment only"
                )
        if CONFIG_VARIABLE in file.values:
            yield f"{file.label}: {CONFIG_VARIABLE} is ignored; it tells where this file is"
        for source in (process, file):
            for name in sorted(source.values):
                if name.startswith(_PREFIX) and not _is_known(name):
                    near = nearest(name, VARIABLES)
                    offer = f"; did you mean {near}?" if near else ""
                    yield f"{source.label}: {_shown(name)} is unknown and ignored{offer}"

    def _source_of(self, name: str) -> Source | None:
        return next((source for source in self._sources if name in source.values), None)


def _is_known(name: str) -> bool:
    return name in VARIABLES or name.startswith("FW_SECRET_")


def _encodes(value: str) -> bool:
    """Say whether a value came as UTF-8: other bytes arrive as halves of characters (PEP 383)."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(name: str) -> str:
    return name[:60].encode("ascii", "backslashreplace").decode()
