"""Loads a site's configuration, or says everything that is wrong with it at once (C-14)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from fw_actors.config.deployment import read_deployment, read_login, read_mail
from fw_actors.config.model import (
    AuthPolicy,
    Config,
    LoginPolicy,
    OpsPolicy,
    SitePolicy,
    WebPolicy,
)
from fw_actors.config.parsing import CONFIG_VARIABLE, DotEnv, Environment, Source, parse_dotenv
from fw_actors.config.policy import ParsedPolicy, parse_policy
from fw_actors.errors import ConfigurationError

T = TypeVar("T")

DEFAULT_FILE: Final = "fw.json"
_MOST_BYTES: Final = 1 << 20
_CAPITAL: Final = re.compile(r"[A-Z]")


class _UnreadableError(Exception):
    """Raised for a file that can't be read as text; the message is the rest of a sentence."""


def site_file(environ: Mapping[str, str], cwd: Path) -> Path:
    """Return the policy file that `environ` names, else the one in `cwd`, there or not.

    The site is its folder (C-10).
    """
    return cwd / (environ.get(CONFIG_VARIABLE) or DEFAULT_FILE)


def load(environ: Mapping[str, str], cwd: Path) -> Config:
    """Return the configuration of the site that `environ` names, else of the one in `cwd`.

    `environ`: the process's environment. `cwd`: absolute; what a relative FW_CONFIG begins at.

    Raises: ConfigurationError with a sentence for each problem of `fw.json`, `.env` and the
    environment, each with its file or place, and its key or variable.
    """
    file = site_file(environ, cwd)
    policy, problems = _read_policy(file)
    dotenv_file = file.parent / ".env"
    dotenv = _read_dotenv(dotenv_file)
    problems += [f"{dotenv_file}: {problem}" for problem in dotenv.problems]
    env = Environment(environ, Source(str(dotenv_file), dotenv.values))
    sections = policy.sections
    config = Config(
        file=file,
        folder=file.parent,
        site=_section(sections["site"], SitePolicy),
        auth=_section(sections["auth"], AuthPolicy),
        login=read_login(env, _section(sections["login"], LoginPolicy)),
        web=_section(sections["web"], WebPolicy),
        ops=_section(sections["ops"], OpsPolicy),
        apps=policy.apps,
        deployment=read_deployment(env),
        mail=read_mail(env),
        secrets=env.secrets(file.parent),
        warnings=tuple(env.warnings()),
    )
    problems += env.problems
    if problems:
        raise ConfigurationError(problems)
    return config


def _read_policy(file: Path) -> tuple[ParsedPolicy, list[str]]:
    """Return what the policy file says, and its problems; the defaults where it says nothing."""
    try:
        parsed = parse_policy(_read(file))
    except _UnreadableError as error:
        return parse_policy("{}"), [f"{file}: {error}"]
    return parsed, [f"{file}: {problem}" for problem in parsed.problems]


def _section(values: Mapping[str, object], kind: type[T]) -> T:
    """Return judged values as a section of the model: fileNames become field_names."""
    named = {
        _CAPITAL.sub(lambda capital: f"_{capital[0].lower()}", name): value
        for name, value in values.items()
    }
    return msgspec.convert(named, kind)


def _read_dotenv(file: Path) -> DotEnv:
    """Read `.env`; a site may do without."""
    try:
        return parse_dotenv(_read(file)) if file.exists() else DotEnv({}, ())
    except _UnreadableError as error:
        return DotEnv({}, (str(error),))


def _read(file: Path) -> str:
    """Return a file's text; UTF-8, with or without a byte order mark, of at most 1 MiB."""
    try:
        with file.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise _UnreadableError(
            f"there is no such file; go to the folder of your site, or name it in {CONFIG_VARIABLE}"
        ) from None
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        raise _UnreadableError(f"it can't be read: {_reason(error)}") from None
    if len(content) > _MOST_BYTES:
        raise _UnreadableError(f"it is larger than {_MOST_BYTES >> 20} MiB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _UnreadableError(f"it is not UTF-8 at byte {error.start}") from None


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)
