"""Loads a site's configuration, with all its problems at once, from file and environment (C-14)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from fw_actors.config import parsing
from fw_actors.config.model import (
    Argon2,
    AuthPolicy,
    Config,
    Deployment,
    LogFormat,
    LoginPolicy,
    LogLevel,
    Mail,
    Mode,
    OpsPolicy,
    ProxyTrustPolicy,
    Security,
    SitePolicy,
    TransportKind,
    WebPolicy,
)
from fw_actors.config.parsing import CONFIG_VARIABLE, DotEnv, Environment, Source, parse_dotenv
from fw_actors.config.policy import ParsedPolicy, TextKind, key_of, parse_policy
from fw_actors.errors import ConfigurationError

T = TypeVar("T")

DEFAULT_FILE: Final = "fw.json"
_MAX_FILE_BYTES: Final = 1 << 20
_CAPITAL: Final = re.compile(r"[A-Z]")


class _UnreadableError(Exception):
    """Raised for a file that cannot be read as text; the message ends a sentence."""


def site_file(environ: Mapping[str, str], cwd: Path) -> Path:
    """Return the policy file that `environ` names, otherwise the one in `cwd`; it may be missing.

    Its folder is the site (C-10).
    """
    return cwd / (environ.get(CONFIG_VARIABLE) or DEFAULT_FILE)


def load(environ: Mapping[str, str], cwd: Path) -> Config:
    """Return the configuration of the site that `environ` names, otherwise of that in `cwd`.

    `environ`: the process's environment. `cwd`: absolute; a relative FW_CONFIG is relative to it.

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
        client_certificates=env.client_certificates(file.parent),
        warnings=tuple(env.warnings()),
    )
    problems += env.problems
    problems += [f"{file}: {problem}" for problem in config.problems_of_processes()]
    if problems:
        raise ConfigurationError(problems)
    return config


def _read_policy(file: Path) -> tuple[ParsedPolicy, list[str]]:
    """Return the content of the policy file with defaults for absent keys, and its problems."""
    try:
        parsed = parse_policy(_read(file))
    except _UnreadableError as error:
        return parse_policy("{}"), [f"{file}: {error}"]
    return parsed, [f"{file}: {problem}" for problem in parsed.problems]


def _section(values: Mapping[str, object], kind: type[T]) -> T:
    """Return validated values as a section of the model, with its names in snake_case."""
    return msgspec.convert(_with_field_names(values), kind)


def _with_field_names(values: object) -> object:
    if not isinstance(values, Mapping):
        return values
    return {
        _CAPITAL.sub(lambda capital: f"_{capital[0].lower()}", name): _with_field_names(value)
        for name, value in values.items()
    }


def _read_dotenv(file: Path) -> DotEnv:
    """Read `.env`, which is optional."""
    try:
        return parse_dotenv(_read(file)) if file.exists() else DotEnv({}, ())
    except _UnreadableError as error:
        return DotEnv({}, (str(error),))


def _read(file: Path) -> str:
    """Return a file's text; UTF-8, with or without a byte order mark, of at most 1 MiB."""
    try:
        with file.open("rb") as stream:
            content = stream.read(_MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise _UnreadableError(
            f"there is no such file; change to the folder of your site, or set {CONFIG_VARIABLE}"
        ) from None
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        raise _UnreadableError(f"it cannot be read: {_reason(error)}") from None
    if len(content) > _MAX_FILE_BYTES:
        raise _UnreadableError(f"it is larger than {_MAX_FILE_BYTES >> 20} MiB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _UnreadableError(f"it is not UTF-8 at byte {error.start}") from None


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)


DEFAULT_BIND: Final = ("127.0.0.1", 8000)
DEFAULT_DATABASE: Final = "sqlite:///data/fw.db"
DEFAULT_ARGON2: Final = Argon2(19 * 1024, 2, 1)
DEFAULT_SENDER: Final = "fw@localhost"
PORTS: Final = {"starttls": 587, "tls": 465, "none": 25}  # RFC 6409, RFC 8314, RFC 5321

_ON_OR_OFF: Final = parsing.one_of("on", "off")
_CREDENTIAL: Final = TextKind(1000, blank=True, ascii=True)  # smtplib sends no other


def read_deployment(env: Environment) -> Deployment:
    """Return the deployment; problems are recorded in `env`."""
    mode: Mode = env.take("FW_MODE", parsing.one_of("production", "development"), "production")
    log_format: LogFormat = env.take("FW_LOG", parsing.one_of("text", "json"), "text")
    log_level: LogLevel = env.take(
        "FW_LOG_LEVEL", parsing.one_of("debug", "info", "warning", "error"), "info"
    )
    bind_host, bind_port = env.take("FW_BIND", parsing.bind, DEFAULT_BIND)
    clock_offset = env.take("FW_CLOCK_OFFSET", parsing.clock_offset, 0.0)
    if env.raw_value("FW_CLOCK_OFFSET") and mode != "development":
        env.refuse("FW_CLOCK_OFFSET", "is for FW_MODE=development only")
    return Deployment(
        public_url=env.take("FW_PUBLIC_URL", parsing.public_url, None),
        trust_proxy=env.take("FW_TRUST_PROXY", parsing.trust_proxy, ProxyTrustPolicy(False, ())),
        mode=mode,
        bind_host=bind_host,
        bind_port=bind_port,
        database=env.take("FW_DATABASE", parsing.database, DEFAULT_DATABASE),
        webhooks_off=env.take("FW_WEBHOOKS", _ON_OR_OFF, "on") == "off",
        log_format=log_format,
        log_level=log_level,
        argon2=env.take("FW_ARGON2", parsing.argon2, DEFAULT_ARGON2),
        clock_offset=clock_offset,
        proxy_credentials=env.take("FW_OUTGOING_PROXY_AUTH", parsing.credentials, None),
    )


def read_mail(env: Environment) -> Mail:
    """Return the mail settings; missing settings of the transport are recorded in `env`."""
    transport: TransportKind = env.take(
        "FW_MAIL_TRANSPORT", parsing.one_of("log", "smtp", "method"), "log"
    )
    security: Security = env.take(
        "FW_SMTP_SECURITY", parsing.one_of("starttls", "tls", "none"), "starttls"
    )
    if transport == "smtp":
        _validate_smtp(env)
    if transport == "method" and not env.raw_value("FW_MAIL_METHOD"):
        env.refuse("FW_MAIL_METHOD", "must name a function with FW_MAIL_TRANSPORT=method")
    return Mail(
        transport=transport,
        method=env.take("FW_MAIL_METHOD", parsing.dotted_function, None),
        sender=env.take("FW_MAIL_FROM", parsing.sender, DEFAULT_SENDER),
        host=env.take("FW_SMTP_HOST", parsing.host, None),
        port=env.take("FW_SMTP_PORT", parsing.whole(1, 65_535), PORTS[security]),
        user=env.take_verbatim("FW_SMTP_USER", _CREDENTIAL),
        password=env.take_verbatim("FW_SMTP_PASSWORD", _CREDENTIAL),
        security=security,
    )


def read_login(env: Environment, file: LoginPolicy) -> LoginPolicy:
    """Return the content of the sign-in page: the environment takes precedence per field (A-343).

    An empty value, in the file or the environment, switches a field off; `\\n` in the notice is a
    line break.
    """
    notice = _login(env, "FW_LOGIN_NOTICE", "notice", file.notice)
    if notice is not None and env.raw_value("FW_LOGIN_NOTICE"):
        notice = notice.replace("\\n", "\n")
    return LoginPolicy(
        notice=notice,
        demo_user=_login(env, "FW_LOGIN_DEMO_USER", "demoUser", file.demo_user),
        demo_password=_login(env, "FW_LOGIN_DEMO_PASSWORD", "demoPassword", file.demo_password),
    )


def _login(env: Environment, variable: str, key: str, in_file: str | None) -> str | None:
    if env.raw_value(variable) is None:
        return in_file or None
    return env.take_verbatim(variable, key_of("login", key).kind)


def _validate_smtp(env: Environment) -> None:
    if not env.raw_value("FW_SMTP_HOST"):
        env.refuse("FW_SMTP_HOST", "must name the server with FW_MAIL_TRANSPORT=smtp")
    for one, other in (("USER", "PASSWORD"), ("PASSWORD", "USER")):
        if env.raw_value(f"FW_SMTP_{one}") and not env.raw_value(f"FW_SMTP_{other}"):
            env.refuse(f"FW_SMTP_{other}", f"must be set together with FW_SMTP_{one}")
