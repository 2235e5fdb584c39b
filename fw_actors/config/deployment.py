"""The facts of a deployment out of its variables: one line for each, with its default."""

from __future__ import annotations

from typing import Final

from fw_actors.config import parsing
from fw_actors.config.model import (
    Argon2,
    Deployment,
    LogFormat,
    LoginPolicy,
    LogLevel,
    Mail,
    Mode,
    ProxyTrustPolicy,
    Security,
    Transport,
)
from fw_actors.config.parsing import Environment
from fw_actors.config.policy import TextKind, key_of

DEFAULT_BIND: Final = ("127.0.0.1", 8000)
DEFAULT_DATABASE: Final = "sqlite:///data/fw.db"
DEFAULT_ARGON2: Final = Argon2(19 * 1024, 2, 1)
DEFAULT_SENDER: Final = "fw@localhost"
PORTS: Final = {"starttls": 587, "tls": 465, "none": 25}  # RFC 6409, RFC 8314, RFC 5321

_ON_OR_OFF: Final = parsing.one_of("on", "off")
_CREDENTIAL: Final = TextKind(1000, blank=True)


def read_deployment(env: Environment) -> Deployment:
    """Return the deployment; what is wrong is noted in `env`."""
    mode: Mode = env.take("FW_MODE", parsing.one_of("production", "development"), "production")
    log_format: LogFormat = env.take("FW_LOG", parsing.one_of("text", "json"), "text")
    log_level: LogLevel = env.take(
        "FW_LOG_LEVEL", parsing.one_of("debug", "info", "warning", "error"), "info"
    )
    bind_host, bind_port = env.take("FW_BIND", parsing.bind, DEFAULT_BIND)
    clock_offset = env.take("FW_CLOCK_OFFSET", parsing.clock_offset, 0.0)
    if env.given("FW_CLOCK_OFFSET") and mode != "development":
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
    )


def read_mail(env: Environment) -> Mail:
    """Return how mail leaves; a transport without what it needs is noted in `env`."""
    transport: Transport = env.take(
        "FW_MAIL_TRANSPORT", parsing.one_of("log", "smtp", "method"), "log"
    )
    security: Security = env.take(
        "FW_SMTP_SECURITY", parsing.one_of("starttls", "tls", "none"), "starttls"
    )
    if transport == "smtp":
        _validate_smtp(env)
    if transport == "method" and not env.given("FW_MAIL_METHOD"):
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
    """Return what the sign-in page shows: the environment wins field by field (A-343).

    An empty value, here or there, switches a field off; `\\n` in the notice is a line break.
    """
    notice = _login(env, "FW_LOGIN_NOTICE", "notice", file.notice)
    if notice is not None and env.given("FW_LOGIN_NOTICE"):
        notice = notice.replace("\\n", "\n")
    return LoginPolicy(
        notice=notice,
        demo_user=_login(env, "FW_LOGIN_DEMO_USER", "demoUser", file.demo_user),
        demo_password=_login(env, "FW_LOGIN_DEMO_PASSWORD", "demoPassword", file.demo_password),
    )


def _login(env: Environment, variable: str, key: str, in_file: str | None) -> str | None:
    if env.given(variable) is None:
        return in_file or None
    return env.take_verbatim(variable, key_of("login", key).kind)


def _validate_smtp(env: Environment) -> None:
    if not env.given("FW_SMTP_HOST"):
        env.refuse("FW_SMTP_HOST", "must name the server with FW_MAIL_TRANSPORT=smtp")
    for one, other in (("USER", "PASSWORD"), ("PASSWORD", "USER")):
        if env.given(f"FW_SMTP_{one}") and not env.given(f"FW_SMTP_{other}"):
            env.refuse(f"FW_SMTP_{other}", f"must be set together with FW_SMTP_{one}")
