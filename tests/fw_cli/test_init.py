"""`fw init` makes a site that works, and changes nothing that is there."""

from __future__ import annotations

import base64
import json
import os
from errno import ENOSPC
from pathlib import Path

import pytest

from tests.fw_cli.conftest import CommandLine


def test_init_creates_site_without_doctor_warnings(fw: CommandLine) -> None:
    said = fw.done("init", "new")
    site = fw.folder / "new"
    assert "created secret.key, .env, .gitignore, fw.json" in said
    assert json.loads((site / "fw.json").read_text())["site"] == {"name": "new"}
    assert json.loads((site / "fw.json").read_text())["auth"] == {"refuseCommonPasswords": True}
    key = (site / "secret.key").read_text().strip()
    assert len(base64.b64decode(key, validate=True)) == 32
    other = CommandLine(site, {**fw.environ, "FW_SECRET_KEY": key, "FW_ARGON2": "19456,2,1"})
    report = other.json("doctor", "--json")
    assert report["sections"]["configuration"]["warnings"] == []
    add = ("user", "add", "ann", "--email", "ann@x.test", "--password-stdin")
    assert "most common" in other.refused(*add, stdin="Password1\n")
    assert report["sections"]["service"]["warnings"] == []


def test_init_prints_pasteable_next_commands(fw: CommandLine) -> None:
    """No command reads a password from visible input, and folder names are quoted."""
    said = fw.done("init", "our site")
    assert f"  cd '{fw.folder}/our site'\n" in said
    assert "--password-stdin" not in said
    assert said.index("fw start") < said.index("fw user add")  # the link leads to what runs


def test_init_keys_differ_and_are_private_to_owner(fw: CommandLine) -> None:
    for name in ("a", "b"):
        fw.done("init", name)
    a, b = (fw.folder / name / "secret.key" for name in ("a", "b"))
    assert a.read_text() != b.read_text()
    assert a.stat().st_mode & 0o777 == 0o600


def test_init_refuses_folder_of_existing_site(fw: CommandLine) -> None:
    before = (fw.folder / "fw.json").read_text()
    assert "already exists" in fw.refused("init")
    assert (fw.folder / "fw.json").read_text() == before
    assert not (fw.folder / "secret.key").exists()


def test_init_keeps_existing_files(fw: CommandLine) -> None:
    (fw.folder / "fw.json").unlink()
    (fw.folder / "secret.key").write_text("the old key")
    assert "secret.key" not in fw.done("init").splitlines()[0]
    assert (fw.folder / "secret.key").read_text() == "the old key"


def test_init_writes_policy_last(fw: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a fw.json is a site, and would not be created again."""
    opened = os.open

    def full(path: Path, *args: int) -> int:
        if path.name == ".gitignore":
            raise OSError(ENOSPC, "no space left", str(path))
        return opened(path, *args)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", full)
        assert "cannot be written" in fw.refused("init", "half")
    assert {file.name for file in (fw.folder / "half").iterdir()} == {"secret.key", ".env"}
    fw.done("init", "half")


def test_init_reports_unwritable_folder(fw: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot be written" in fw.refused("init", "file/new")


def test_init_app_creates_working_app(fw: CommandLine) -> None:
    """C-112."""
    said = fw.done("init", "new", "--app", "my_notes")
    assert "my_notes.py" in said
    site = CommandLine(fw.folder / "new", fw.environ)
    note = 'fw.new_doc("Note", title="Hello").insert().mood'
    assert site.done("eval", note) == '"calm"\n'


@pytest.mark.parametrize("name", ["fw_x", "tests", "web", "fw_actors"])
def test_init_app_refuses_name_of_the_framework(fw: CommandLine, name: str) -> None:
    """The site would not open: fw.json must not list such a module."""
    assert f"{name} is reserved for the framework" in fw.refused("init", "new", "--app", name)
    assert not (fw.folder / "new").exists()


@pytest.mark.parametrize("name", ["json", "click"])
def test_init_app_refuses_name_of_existing_module(fw: CommandLine, name: str) -> None:
    assert f"a module {name} already exists" in fw.refused("init", "new", "--app", name)
    assert not (fw.folder / "new").exists()


@pytest.mark.parametrize("name", ["my-notes", "2nd", "class", "a.b", "../x", ""])
def test_init_app_refuses_invalid_module_name(fw: CommandLine, name: str) -> None:
    result = fw.run("init", "new", "--app", name)
    assert result.exit_code == 2
    assert not (fw.folder / "new").exists()


def test_missing_import_of_app_is_suggested(fw: CommandLine) -> None:
    fw.done("init", "new", "--app", "unimported")
    app = fw.folder / "new" / "unimported.py"
    app.write_text("class Note(DocType):\n    pass\n")
    output = CommandLine(fw.folder / "new", fw.environ).refused("migrate")
    assert "line 1: NameError" in output
    assert "; from fw_actors.app import DocType" in output
