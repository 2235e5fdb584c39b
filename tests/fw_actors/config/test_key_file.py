"""The key of Vault fields out of a file: docs/configuration.md, Secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from fw_actors.config import load
from fw_actors.errors import ConfigurationError


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "fw.json").write_text("{}")
    return tmp_path


def put(path: Path, text: str | bytes, mode: int = 0o600) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


def credential(site: Path, text: str, mode: int = 0o600) -> dict[str, str]:
    return {"CREDENTIALS_DIRECTORY": str(put(site / "run" / "fw_secret_key", text, mode).parent)}


def key(site: Path, **environ: str) -> str | None:
    return load(environ, site).secrets.key


def problem(site: Path, **environ: str) -> str:
    with pytest.raises(ConfigurationError) as refused:
        load(environ, site)
    (only,) = refused.value.problems
    return only


def test_key_file_of_the_site_replaces_an_unset_variable(site: Path) -> None:
    """`secret.key` beside fw.json is read where FW_SECRET_KEY is unset (C-81)."""
    assert key(site) is None
    own = put(site / "secret.key", "of the site\n")
    assert key(site) == "of the site"
    assert load({"FW_CONFIG": str(site / "fw.json")}, Path("/")).secrets.key_file == own
    assert key(site, FW_SECRET_KEY="of the process") == "of the process"
    assert load({"FW_SECRET_KEY": "of the process"}, site).secrets.key_file is None
    assert key(site, FW_SECRET_KEY="") is None


def test_key_file_may_be_named_by_a_variable(site: Path) -> None:
    put(site / "secret.key", "of the site")
    named = put(site.parent / f"{site.name}-key", "named\r\n")
    assert key(site, FW_SECRET_KEY_FILE=str(named)) == "named"
    assert key(site, FW_SECRET_KEY_FILE=f"../{named.name}") == "named"
    assert key(site, FW_SECRET_KEY_FILE="") == "of the site"


def test_key_may_be_a_credential_of_systemd(site: Path) -> None:
    put(site / "secret.key", "of the site")
    assert key(site, **credential(site, "of systemd\n")) == "of systemd"
    assert key(site, CREDENTIALS_DIRECTORY=str(site / "nothing")) == "of the site"
    assert key(site, **credential(site, "of systemd", mode=0o444)) == "of systemd"


def test_key_from_two_sources_is_refused(site: Path) -> None:
    """The intended one of two keys is unknown, and the wrong one opens no value."""
    named = str(put(site / "named", "a key"))
    both = problem(site, FW_SECRET_KEY="x" * 40, FW_SECRET_KEY_FILE=named)
    assert both == (
        "environment: the key is given by FW_SECRET_KEY and FW_SECRET_KEY_FILE; "
        "give it by one of them"
    )
    systemd = credential(site, "of systemd")
    assert "systemd's credential" in problem(site, FW_SECRET_KEY="x" * 40, **systemd)
    assert "systemd's credential" in problem(site, FW_SECRET_KEY_FILE=named, **systemd)


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o620, 0o644, 0o666])
@pytest.mark.parametrize("name", ["secret.key", "named"])
def test_key_file_open_to_other_users_is_refused(site: Path, name: str, mode: int) -> None:
    """C-82."""
    file = put(site / name, "a key", mode)
    given = {} if name == "secret.key" else {"FW_SECRET_KEY_FILE": name}
    assert problem(site, **given) == f"{file} is open to other users: chmod 600 {file}"


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440])
def test_key_file_readable_by_owner_and_group_is_accepted(site: Path, mode: int) -> None:
    put(site / "secret.key", "a key", mode)
    assert key(site) == "a key"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "contains no key"),
        (b"\n", "contains no key"),
        (b" \n", "contains no key"),
        (b"a\0b", "contains no key"),
        (b"\xff\xfe", "not UTF-8"),
        (b"k" * 4097, "larger than 4,096 bytes"),
    ],
)
def test_key_file_without_a_usable_key_is_refused(
    site: Path, content: bytes, expected: str
) -> None:
    file = put(site / "secret.key", content)
    found = problem(site)
    assert found.startswith(str(file))
    assert expected in found


def test_key_file_that_cannot_be_read_is_refused(site: Path) -> None:
    assert problem(site, FW_SECRET_KEY_FILE="gone").endswith(
        "cannot be read: No such file or directory"
    )
    (site / "secret.key").mkdir()
    assert "cannot be read" in problem(site)


def test_key_of_a_file_is_hidden_and_unavailable_to_apps(site: Path) -> None:
    named = put(site / "named", "a key of a file")
    config = load({"FW_SECRET_KEY_FILE": str(named)}, site)
    assert config.hidden() == ("a key of a file",)
    assert config.secrets.get("key") is None
    assert config.secrets.get("key_file") is None
    assert config.warnings == ()


def test_key_file_variable_in_the_env_file_is_ignored(site: Path) -> None:
    put(site / "named", "a key")
    (site / ".env").write_text("FW_SECRET_KEY_FILE=named\n")
    config = load({}, site)
    assert config.secrets.key is None
    assert "FW_SECRET_KEY_FILE is ignored" in config.warnings[0]
