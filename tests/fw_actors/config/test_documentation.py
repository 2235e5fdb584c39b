"""docs/configuration.md says what the code says: a setting that it lacks fails the run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest

from fw_actors.config.load import (
    DEFAULT_ARGON2,
    DEFAULT_BIND,
    DEFAULT_DATABASE,
    DEFAULT_SENDER,
    PORTS,
    read_deployment,
    read_mail,
)
from fw_actors.config.model import (
    MAX_ARGON2,
    Argon2,
    LogFormat,
    LogLevel,
    Mode,
    Security,
    TransportKind,
)
from fw_actors.config.parsing import VARIABLES, Environment, Source
from fw_actors.config.policy import (
    RESERVED_APPS,
    SECTIONS,
    FlagKind,
    HostsKind,
    Kind,
    NetworksKind,
    NumberKind,
    ProxyKind,
    TextKind,
    WholeKind,
    WholeOrWordKind,
    WordKind,
    keys_of,
)

PAGE = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text()
ROWS = {
    cells[0]: cells[1:]
    for line in PAGE.splitlines()
    if line.startswith("| ") and (cells := [cell.strip() for cell in line[1:-1].split("|")])
}


def words(kind: Kind) -> str:
    match kind:
        case WholeKind(low, high):
            text = f"{low} to {high}"
        case WholeOrWordKind(low, high, word):
            text = f'{low} to {high}, or "{word}"'
        case NumberKind(low, high):
            text = f"{low:g} to {high:g}"
        case FlagKind(or_null):
            text = "true, false or null" if or_null else "true or false"
        case TextKind(longest):
            text = f"text of at most {longest:,} characters"
        case WordKind(choices):
            text = " or ".join(f'"{word}"' for word in choices)
        case HostsKind(limit):
            return f"at most {limit} hosts"
        case ProxyKind():
            return "a URL such as `http://proxy.example.org:3128`"
        case NetworksKind(limit):
            text = f"at most {limit} networks"
        case _:
            raise AssertionError(f"no words for {kind}")
    return text


def hash_cost(cost: Argon2) -> str:
    return f"`{cost.memory_kib},{cost.time},{cost.parallelism}`"


@pytest.mark.parametrize("section", SECTIONS)
def test_configuration_page_lists_all_keys_with_defaults_and_values(section: str) -> None:
    for path, key in keys_of(section):
        row = ROWS[f"{section}.{path}"]
        assert row[:2] == [json.dumps(key.default), words(key.kind)]


def test_configuration_page_names_existing_keys_and_variables_only() -> None:
    keys = {f"{section}.{path}" for section in SECTIONS for path, _ in keys_of(section)}
    assert set(ROWS) == {*keys, *VARIABLES, "Key", "Variable"}


def test_configuration_page_shows_the_defaults_of_variables() -> None:
    assert ROWS["FW_BIND"][0] == f"`{DEFAULT_BIND[0]}:{DEFAULT_BIND[1]}`"
    assert ROWS["FW_DATABASE"][0] == f"`{DEFAULT_DATABASE}`"
    assert ROWS["FW_MAIL_FROM"][0] == f"`{DEFAULT_SENDER}`"
    assert ROWS["FW_ARGON2"][0] == hash_cost(DEFAULT_ARGON2)
    assert hash_cost(MAX_ARGON2) in ROWS["FW_ARGON2"][1]
    assert ROWS["FW_SMTP_PORT"][0] == "{starttls}, {tls} or {none}".format(**PORTS)


def test_configuration_page_lists_reserved_app_names() -> None:
    assert ", ".join(f"`{name}`" for name in RESERVED_APPS) in PAGE


@pytest.mark.parametrize(
    ("variable", "choices"),
    [
        ("FW_MODE", get_args(Mode)),
        ("FW_LOG", get_args(LogFormat)),
        ("FW_LOG_LEVEL", get_args(LogLevel)),
        ("FW_MAIL_TRANSPORT", get_args(TransportKind)),
        ("FW_SMTP_SECURITY", get_args(Security)),
        ("FW_WEBHOOKS", ("on", "off")),
        ("FW_TRUST_PROXY", ("off", "on")),
    ],
)
def test_configuration_page_lists_the_words_of_variables(
    variable: str, choices: tuple[str, ...]
) -> None:
    shown = re.findall("`([a-z]+)`", ROWS[variable][1].partition(";")[0])
    assert shown[: len(choices)] == list(choices)


def test_configuration_page_defaults_of_words_are_those_of_the_code() -> None:
    env = Environment({}, Source(".env", {}))
    deployment, mail = read_deployment(env), read_mail(env)
    assert f"`{deployment.mode}`" == ROWS["FW_MODE"][0]
    assert f"`{deployment.log_format}`" == ROWS["FW_LOG"][0]
    assert f"`{deployment.log_level}`" == ROWS["FW_LOG_LEVEL"][0]
    assert f"`{mail.transport}`" == ROWS["FW_MAIL_TRANSPORT"][0]
    assert f"`{mail.security}`" == ROWS["FW_SMTP_SECURITY"][0]
    assert f"`{deployment.clock_offset:g}`" == ROWS["FW_CLOCK_OFFSET"][0]
    assert not deployment.webhooks_off
    assert deployment.trust_proxy.is_off
