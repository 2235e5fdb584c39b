"""A file is complete or absent, also when the process that wrote it was killed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fw_actors.errors import ConfigurationError
from fw_actors.store.backup import new_file


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "whole"


def killed_before_the_draft_was_removed(target: Path, text: str) -> None:
    """Leave the state of a kill between link and removal: one file with two names."""
    target.write_text(text)
    os.link(target, target.with_name(f".{target.name}.part"))


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_new_file_gets_name_once_complete(target: Path) -> None:
    with new_file(target) as draft:
        draft.write_text("all of it")
        assert not target.exists()
    assert target.read_text() == "all of it"
    assert target.stat().st_mode & 0o777 == 0o600
    assert names(target.parent) == {"whole"}


def test_new_file_keeps_existing_file(target: Path) -> None:
    killed_before_the_draft_was_removed(target, "the first")
    with (
        pytest.raises(ConfigurationError, match="already exists"),
        new_file(target) as draft,
    ):
        draft.write_text("the second")
    assert target.read_text() == "the first"
    assert names(target.parent) == {"whole"}


def test_new_file_leaves_renamed_file_of_killed_process_unchanged(target: Path) -> None:
    """For example `secret.key.new` becomes `secret.key`: the next new key must not be written into
    the key in use."""
    killed_before_the_draft_was_removed(target, "the key that is in use")
    used = target.rename(target.with_name("used"))
    with new_file(target) as draft:
        draft.write_text("the key that comes next")
    assert used.read_text() == "the key that is in use"
    assert target.read_text() == "the key that comes next"
    assert names(target.parent) == {"whole", "used"}


def test_new_file_discards_draft_of_killed_process(target: Path) -> None:
    target.with_name(".whole.part").write_text("half of something much longer")
    with new_file(target) as draft:
        assert draft.read_text() == ""
        draft.write_text("whole")
    assert target.read_text() == "whole"
