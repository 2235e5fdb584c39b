"""Loading a site's configuration from its folder and environment (C-14, C-50)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from operator import attrgetter
from pathlib import Path
from urllib.parse import unquote

import pytest

from fw_actors.config import Argon2, Config, load
from fw_actors.config.model import Mail
from fw_actors.errors import ConfigurationError

Write = Callable[..., Path]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "fw.json").write_text("{}")
    return tmp_path


def policy(site: Path, document: object) -> None:
    (site / "fw.json").write_text(json.dumps(document))


def problems(site: Path, **environ: str) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as refused:
        load(environ, site)
    return refused.value.problems


def only_problem(site: Path, **environ: str) -> str:
    found = problems(site, **environ)
    assert len(found) == 1, found
    return found[0]


def test_config_hides_secrets_of_all_sources(tmp_path: Path) -> None:
    (tmp_path / "fw.json").write_text("{}")
    environ = {
        "FW_SECRET_KEY": "the vault key", "FW_SECRET_STRIPE": "sk_live", "FW_SMTP_USER": "fw",
        "FW_SMTP_PASSWORD": "of the mail", "FW_LOGIN_DEMO_PASSWORD": "for anyone",
        "FW_DATABASE": "postgresql://fw:p%40ss@db/fw?sslpassword=of%20the+key",
    }  # fmt: skip
    config = load(environ, tmp_path)
    assert set(config.hidden()) == {
        "the vault key", "sk_live", "of the mail", "p%40ss", "p@ss", "of%20the+key",
        "of the+key",
    }  # fmt: skip
    assert config.scrubber.scrub_known("sk_live and for anyone") == "[scrubbed] and for anyone"


@pytest.mark.parametrize("password", ["of+the%20db", "of#the+db"])
def test_password_in_database_query_is_hidden_as_libpq_reads_it(site: Path, password: str) -> None:
    """libpq decodes no plus, and knows no fragment (C-85)."""
    config = load({"FW_DATABASE": f"postgresql://fw@db/fw?password={password}&port=1"}, site)
    assert set(config.hidden()) == {password, unquote(password)}


def test_config_has_file_and_folder_of_site(site: Path) -> None:
    config = load({}, site)
    assert (config.file, config.folder) == (site / "fw.json", site)


DEFAULTS = [
    ("apps", ()),
    ("auth.session_days", 30),
    ("auth.api_key_days", 0),
    ("auth.min_password_length", 8),
    ("auth.max_login_attempts", 5),
    ("auth.lockout_minutes", 15),
    ("auth.reset_minutes", 60),
    ("auth.invite_hours", 72),
    ("auth.secure_cookie", None),
    ("auth.self_service_api_keys", True),
    ("auth.address_attempts", 50),
    ("auth.recovery_attempts", 20),
    ("auth.refuse_common_passwords", False),
    ("login.notice", None),
    ("login.demo_user", None),
    ("login.demo_password", None),
    ("web.max_requests", 1000),
    ("ops.webhook_retention_days", 30),
    ("ops.scheduler", True),
    ("ops.honour_retry_after", False),
    ("ops.delivery_concurrency", 512),
    ("ops.per_receiver_concurrency", 16),
    ("ops.backoff_seconds", 30.0),
    ("ops.backoff_cap_seconds", 3600.0),
    ("deployment.public_url", None),
    ("deployment.mode", "production"),
    ("deployment.trust_proxy.every_peer", False),
    ("deployment.trust_proxy.networks", ()),
    ("deployment.bind_host", "127.0.0.1"),
    ("deployment.bind_port", 8000),
    ("deployment.database", "sqlite:///data/fw.db"),
    ("deployment.webhooks_off", False),
    ("deployment.clock_offset", 0),
    ("deployment.log_format", "text"),
    ("deployment.log_level", "info"),
    ("deployment.argon2", Argon2(memory_kib=19 * 1024, time=2, parallelism=1)),
    ("mail.transport", "log"),
    ("mail.security", "starttls"),
    ("secrets.key", None),
    ("warnings", ()),
]


@pytest.mark.parametrize(("setting", "default"), DEFAULTS)
def test_config_has_the_defaults_of_the_contract(site: Path, setting: str, default: object) -> None:
    """The defaults of C-16 to C-42, with C-30, and of C-54 to C-71, with C-68 and C-69."""
    assert attrgetter(setting)(load({}, site)) == default


def test_config_reads_all_variables(site: Path) -> None:
    config = load(
        {
            "FW_PUBLIC_URL": "https://fw.example.test",
            "FW_TRUST_PROXY": "on",
            "FW_MODE": "development",
            "FW_BIND": "[::1]:0",
            "FW_DATABASE": "postgresql://db.test/fw",
            "FW_MAIL_TRANSPORT": "smtp",
            "FW_MAIL_METHOD": "shop.send",
            "FW_MAIL_FROM": "Desk <desk@example.test>",
            "FW_SMTP_HOST": "smtp.example.test",
            "FW_SMTP_PORT": "2525",
            "FW_SMTP_USER": "desk",
            "FW_SMTP_PASSWORD": " p w ",
            "FW_SMTP_SECURITY": "tls",
            "FW_WEBHOOKS": "off",
            "FW_LOG": "json",
            "FW_LOG_LEVEL": "WARNING",
            "FW_ARGON2": "65536,3,1",
            "FW_CLOCK_OFFSET": "-61.5",
        },
        site,
    )
    deployment = config.deployment
    assert deployment.public_url == "https://fw.example.test"
    assert (deployment.trust_proxy.every_peer, deployment.mode) == (True, "development")
    assert (deployment.bind_host, deployment.bind_port) == ("::1", 0)
    assert deployment.database == "postgresql://db.test/fw"
    assert (deployment.webhooks_off, deployment.log_format) == (True, "json")
    assert (deployment.log_level, deployment.clock_offset) == ("warning", -61.5)
    assert deployment.argon2 == Argon2(65536, 3, 1)
    assert config.mail == Mail(
        transport="smtp",
        method="shop.send",
        sender="Desk <desk@example.test>",
        host="smtp.example.test",
        port=2525,
        user="desk",
        password=" p w ",
        security="tls",
    )


def test_policy_values_have_python_names(site: Path) -> None:
    policy(
        site,
        {
            "site": {"name": "bb"},
            "auth": {"sessionDays": 1, "selfServiceApiKeys": False, "secureCookie": True},
            "ops": {"backoffSeconds": 1, "honourRetryAfter": True},
            "apps": ["examples.notes"],
        },
    )
    config = load({}, site)
    assert (config.site.name, config.apps) == ("bb", ("examples.notes",))
    assert (config.auth.session_days, config.auth.self_service_api_keys) == (1, False)
    assert (config.auth.secure_cookie, config.ops.honour_retry_after) == (True, True)
    assert (config.ops.backoff_seconds, type(config.ops.backoff_seconds)) == (1.0, float)


def test_config_is_frozen(site: Path) -> None:
    config = load({}, site)
    with pytest.raises(FrozenInstanceError):
        config.auth.session_days = 5  # type: ignore[misc]


# -- where the site is


@pytest.mark.parametrize("absolute", [True, False])
def test_fw_config_names_a_file_whose_folder_is_the_site(site: Path, absolute: bool) -> None:
    """The site is the folder of fw.json; FW_CONFIG names another file (C-10)."""
    other = site / "sites" / "shop.json"
    other.parent.mkdir()
    other.write_text('{"site": {"name": "shop"}}')
    config = load({"FW_CONFIG": str(other) if absolute else "sites/shop.json"}, site)
    assert (config.site.name, config.file, config.folder) == ("shop", other, other.parent)


def test_fw_config_empty_counts_as_unset(site: Path) -> None:
    assert load({"FW_CONFIG": ""}, site).file == site / "fw.json"


@pytest.mark.parametrize("name", ["none.json", ".", "none/fw.json", "zero\0.json"])
def test_policy_file_missing_is_refused(site: Path, name: str) -> None:
    assert str(site / name) in only_problem(site, FW_CONFIG=name)


@pytest.mark.parametrize(
    ("name", "reason"), [(".", "Is a directory"), ("zero\0.json", "embedded null byte")]
)
def test_policy_file_unreadable_is_refused_with_reason(site: Path, name: str, reason: str) -> None:
    assert only_problem(site, FW_CONFIG=name).endswith(f": it cannot be read: {reason}")


def test_policy_file_must_be_utf_8_of_limited_size(site: Path) -> None:
    (site / "fw.json").write_bytes(b'{"site": {"name": "\xff"}}')
    assert "not UTF-8 at byte 19" in only_problem(site)
    (site / "fw.json").write_bytes(b"{}" + b" " * (1 << 20))
    assert "larger than 1 MiB" in only_problem(site)
    (site / "fw.json").write_bytes(b"{}" + b" " * ((1 << 20) - 2))
    assert load({}, site).file == site / "fw.json"


def test_policy_and_env_file_may_begin_with_a_bom(site: Path) -> None:
    (site / "fw.json").write_bytes(b'\xef\xbb\xbf{"site": {"name": "bb"}}')
    (site / ".env").write_bytes(b"\xef\xbb\xbfFW_LOG=json\n")
    config = load({}, site)
    assert (config.site.name, config.deployment.log_format) == ("bb", "json")


# -- problems


def test_problems_of_all_sources_are_reported_together(site: Path) -> None:
    """All problems are reported at once, with file and key (C-14)."""
    policy(site, {"auth": {"sessionDays": 0, "sesionDays": 1}, "login": {"notice": 5}})
    (site / ".env").write_text("FW_LOG=xml\nnonsense\n")
    found = problems(site, FW_MAIL_TRANSPORT="pigeon", FW_TRUST_PROXY="perhaps")
    for place, subject in [
        ("fw.json", "auth.sessionDays"),
        ("fw.json", "auth.sesionDays"),
        ("fw.json", "login.notice"),
        (".env", "line 2"),
        (".env", "FW_LOG"),
        ("environment", "FW_MAIL_TRANSPORT"),
        ("environment", "FW_TRUST_PROXY"),
    ]:
        assert any(f"{place}: {subject} " in problem for problem in found), (subject, found)
    assert len(found) == 7


def test_environment_is_checked_if_the_policy_file_is_missing(tmp_path: Path) -> None:
    file, variable = problems(tmp_path, FW_LOG="xml")
    assert "there is no such file" in file
    assert "FW_LOG" in variable


@pytest.mark.parametrize(
    "name",
    [
        "FW_ARGON2", "FW_BIND", "FW_CLOCK_OFFSET", "FW_DATABASE", "FW_LOG", "FW_LOG_LEVEL",
        "FW_LOGIN_DEMO_PASSWORD", "FW_LOGIN_DEMO_USER", "FW_LOGIN_NOTICE", "FW_MAIL_FROM",
        "FW_MAIL_METHOD", "FW_MAIL_TRANSPORT", "FW_MODE", "FW_PUBLIC_URL", "FW_SECRET_KEY",
        "FW_SECRET_STRIPE", "FW_SMTP_HOST", "FW_SMTP_PASSWORD", "FW_SMTP_PORT", "FW_SMTP_SECURITY",
        "FW_SMTP_USER", "FW_TRUST_PROXY", "FW_WEBHOOKS",
    ],
)  # fmt: skip
def test_variables_refuse_bytes_that_are_not_utf_8(site: Path, name: str) -> None:
    """Such bytes arrive as lone surrogates (PEP 383), which no message shows."""
    mode = {} if name == "FW_MODE" else {"FW_MODE": "development"}
    problem = only_problem(site, **mode, **{name: "hidden\udcff"})
    assert problem.startswith(f"environment: {name} must ")
    assert problem.isprintable()
    assert "hidden" not in problem


def test_variables_refuse_control_characters(site: Path) -> None:
    problem = only_problem(site, FW_DATABASE="sqlite:///data/a\x07b.db")
    assert problem == "environment: FW_DATABASE must not contain control characters"


def test_outer_white_space_of_a_variable_is_ignored(site: Path) -> None:
    assert load({"FW_LOG": " json\r\n"}, site).deployment.log_format == "json"


def test_clock_offset_is_refused_outside_development_mode(site: Path) -> None:
    """A clock offset is for development mode only, and refused at load otherwise (C-63)."""
    assert "FW_CLOCK_OFFSET" in only_problem(site, FW_CLOCK_OFFSET="0")
    assert "FW_CLOCK_OFFSET" in only_problem(site, FW_CLOCK_OFFSET="5", FW_MODE="production")
    development = load({"FW_CLOCK_OFFSET": "5", "FW_MODE": "development"}, site)
    assert development.deployment.clock_offset == 5


def test_mail_transport_requires_its_host_or_function(site: Path) -> None:
    """A transport without its host or its function is refused (C-64, C-65, C-67, O-50)."""
    assert "FW_SMTP_HOST" in only_problem(site, FW_MAIL_TRANSPORT="smtp")
    assert "FW_SMTP_HOST" in only_problem(site, FW_MAIL_TRANSPORT="smtp", FW_SMTP_HOST="")
    assert "FW_MAIL_METHOD" in only_problem(site, FW_MAIL_TRANSPORT="method")


def test_mail_transport_method_is_accepted_with_its_function(site: Path) -> None:
    """The transport `method` calls FW_MAIL_METHOD (C-65)."""
    mail = load({"FW_MAIL_TRANSPORT": "method", "FW_MAIL_METHOD": "shop.mail.send"}, site).mail
    assert (mail.transport, mail.method) == ("method", "shop.mail.send")


@pytest.mark.parametrize("name", ["FW_SMTP_USER", "FW_SMTP_PASSWORD"])
def test_smtp_account_requires_user_and_password(site: Path, name: str) -> None:
    assert load({name: "x"}, site).mail.transport == "log"
    smtp = {"FW_MAIL_TRANSPORT": "smtp", "FW_SMTP_HOST": "x.test"}
    assert f"set together with {name}" in only_problem(site, **smtp, **{name: "x"})
    smtp |= {"FW_SMTP_USER": "x", "FW_SMTP_PASSWORD": "x", name: "schlüssel"}
    assert f"{name} must be ASCII" in only_problem(site, **smtp)


@pytest.mark.parametrize(("security", "port"), [("starttls", 587), ("tls", 465), ("none", 25)])
def test_smtp_port_defaults_by_security(site: Path, security: str, port: int) -> None:
    assert load({"FW_SMTP_SECURITY": security}, site).mail.port == port
    assert load({"FW_SMTP_SECURITY": security, "FW_SMTP_PORT": "26"}, site).mail.port == 26


@pytest.mark.parametrize("port", [1, 65_535])
def test_smtp_port_is_from_1_to_65535(site: Path, port: int) -> None:
    assert load({"FW_SMTP_PORT": str(port)}, site).mail.port == port
    outside = "0" if port == 1 else "65536"
    assert "FW_SMTP_PORT must be" in only_problem(site, FW_SMTP_PORT=outside)


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("FW_MODE", "production development"),
        ("FW_LOG", "text json"),
        ("FW_LOG_LEVEL", "debug info warning error"),
        ("FW_MAIL_TRANSPORT", "log"),
        ("FW_WEBHOOKS", "on off"),
        ("FW_TRUST_PROXY", "on off"),
    ],
)
def test_variables_accept_each_of_their_words(site: Path, variable: str, words: str) -> None:
    """Also the default, which an operator may spell out (C-54 to C-71)."""
    for word in words.split():
        load({variable: word}, site)


# -- process and .env


def test_process_environment_overrides_the_env_file(site: Path) -> None:
    """The process comes first, then the file .env beside fw.json (C-50)."""
    (site / ".env").write_text("# facts\nFW_LOG=json\nFW_LOG_LEVEL=debug\nPATH=/nowhere\n")
    deployment = load({"FW_LOG_LEVEL": "error"}, site).deployment
    assert (deployment.log_format, deployment.log_level) == ("json", "error")


def test_empty_variable_overrides_the_env_file_as_unset(site: Path) -> None:
    (site / ".env").write_text("FW_LOG=json\nFW_BIND=\n")
    deployment = load({"FW_LOG": ""}, site).deployment
    assert (deployment.log_format, deployment.bind_port) == ("text", 8000)


def test_unreadable_env_file_is_a_problem(site: Path) -> None:
    (site / ".env").mkdir()
    assert "/.env: " in only_problem(site)


def test_login_variables_override_the_policy_field_by_field(site: Path) -> None:
    r"""The environment wins over the policy file field by field (A-343); `\n` in it is a line break
    (C-71)."""
    policy(site, {"login": {"notice": r"C:\new", "demoUser": "file", "demoPassword": "file \\n"}})
    (site / ".env").write_text("FW_LOGIN_DEMO_USER=env file\n")
    assert load({}, site).login.notice == r"C:\new"
    login = load({"FW_LOGIN_NOTICE": r"one\ntwo"}, site).login
    assert (login.notice, login.demo_user) == ("one\ntwo", "env file")
    assert login.demo_password == "file \\n"


def test_empty_login_variable_switches_the_field_off(site: Path) -> None:
    """FW_LOGIN_NOTICE= wins over the file and switches the field off (C-51)."""
    policy(site, {"login": {"notice": "file", "demoUser": "", "demoPassword": "file"}})
    (site / ".env").write_text("FW_LOGIN_DEMO_PASSWORD=\n")
    login = load({"FW_LOGIN_NOTICE": ""}, site).login
    assert (login.notice, login.demo_user, login.demo_password) == (None, None, None)


def test_login_variable_is_checked_like_the_policy(site: Path) -> None:
    assert "FW_LOGIN_DEMO_USER" in only_problem(site, FW_LOGIN_DEMO_USER="a\x07b")
    problem = only_problem(site, FW_LOGIN_DEMO_USER="x" * 321)
    assert problem == "environment: FW_LOGIN_DEMO_USER must have at most 320 characters"


def test_short_secrets_are_named_by_their_variables(site: Path) -> None:
    """fw doctor names them. An empty value is none, and the Vault key has a rule of its own."""
    config = load(
        {
            "FW_SECRET_KEY": "short", "FW_SECRET_STRIPE": " 123 ", "FW_SECRET_CRM": "1234",
            "FW_SECRET_BLANK": "  ", "FW_SECRET_A": "a", "FW_SMTP_USER": "fw",
            "FW_SMTP_PASSWORD": "s", "FW_DATABASE": "postgresql://fw:db@db.test/fw",
            "FW_OUTGOING_PROXY_AUTH": "fw:abc",
        },
        site,
    )  # fmt: skip
    assert config.names_of_short_secrets(4) == (
        "FW_DATABASE", "FW_SMTP_PASSWORD", "FW_OUTGOING_PROXY_AUTH", "FW_SECRET_A",
        "FW_SECRET_STRIPE",
    )  # fmt: skip
    assert config.names_of_short_secrets(1) == ()


# -- secrets


def secret_site(site: Path) -> Config:
    (site / ".env").write_text("FW_SECRET_KEY=from-the-file\nFW_SECRET_STRIPE=from-the-file\n")
    return load({"FW_SECRET_PAY_2": "sk_1", "FW_SECRET_": "x", "FW_SECRET_low": "y"}, site)


def test_secrets_are_process_variables_by_lower_case_name(site: Path) -> None:
    """An app reads only variables with that prefix (C-83), of the process only (C-80)."""
    secrets = secret_site(site).secrets
    assert (secrets.key, secrets.get("pay_2")) == (None, "sk_1")
    for name in (
        "stripe",
        "PAY_2",
        "",
        "key",
        "low",
        "path",
        "secret_pay_2",
        "pay_2\0",
        "../pay_2",
    ):
        assert secrets.get(name) is None


def test_secret_with_other_name_is_ignored_with_warning(site: Path) -> None:
    """It looks like a secret, and no app can read it (C-52)."""
    warnings = load({"FW_SECRET_stripe": "x", "FW_SECRET_PAY": "y"}, site).warnings
    assert warnings == (
        "environment: FW_SECRET_stripe is ignored; after FW_SECRET_ a name has only A-Z, 0-9 and _",
    )


def test_vault_key_is_no_secret_of_apps(site: Path) -> None:
    """`fw.secret("key")` is refused (D-200)."""
    secrets = load({"FW_SECRET_KEY": "k" * 40}, site).secrets
    assert (secrets.key, secrets.get("key")) == ("k" * 40, None)


def test_hidden_values_have_no_empty_one(site: Path) -> None:
    """An empty text stands in every text, and would be scrubbed from it."""
    assert load({"FW_SECRET_STRIPE": ""}, site).hidden() == ()


def test_empty_secret_counts_as_unset(site: Path) -> None:
    secrets = load({"FW_SECRET_KEY": "", "FW_SECRET_STRIPE": ""}, site).secrets
    assert (secrets.key, secrets.get("stripe")) == (None, None)


def test_secrets_in_the_env_file_are_ignored_with_a_warning(site: Path) -> None:
    """Secrets in `.env` are ignored, and doctor warns (C-80)."""
    warnings = secret_site(site).warnings
    for name in ("FW_SECRET_KEY", "FW_SECRET_STRIPE"):
        assert any(f"/.env: {name} is ignored" in warning for warning in warnings)
    assert "from-the-file" not in "".join(warnings)


def test_unknown_fw_variables_are_warned_of_with_a_suggestion(site: Path) -> None:
    (site / ".env").write_text("FW_SMTP_HSOT=x.test\nOTHER=1\nFW_CONFIG=fw.json\n")
    assert load({"FW_PUBLIC_ULR": "https://x.test", "LANG": "C"}, site).warnings == (
        f"{site}/.env: FW_CONFIG is ignored; set it in the environment, since it locates this file",
        "environment: FW_PUBLIC_ULR is unknown and ignored; did you mean FW_PUBLIC_URL?",
        f"{site}/.env: FW_SMTP_HSOT is unknown and ignored; did you mean FW_SMTP_HOST?",
    )


@pytest.mark.parametrize(
    ("variable", "offer"),
    [("FW_SECRETKEY", "; did you mean FW_SECRET_KEY?"), ("FW_FOO", "")],
)
def test_suggestion_for_an_unknown_variable_disregards_the_prefix(
    site: Path, variable: str, offer: str
) -> None:
    """With its prefix, FW_FOO resembles FW_LOG."""
    (warning,) = load({variable: "x"}, site).warnings
    assert warning == f"environment: {variable} is unknown and ignored{offer}"


def test_config_repr_shows_no_secret(site: Path) -> None:
    config = load(
        {
            "FW_SECRET_KEY": "hidden-1",
            "FW_SECRET_STRIPE": "hidden-2",
            "FW_SMTP_PASSWORD": "hidden-3",
            "FW_DATABASE": "postgresql://fw:hidden-4@db.test/fw",
        },
        site,
    )
    assert "hidden" not in repr(config) + str(config) + f"{config.secrets!s}"
