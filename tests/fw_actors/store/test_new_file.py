"""A file is there whole or not at all, also where the process that made it was killed."""

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
    """Leave what a kill leaves between the link and the end: one file with two names."""
    target.write_text(text)
    os.link(target, target.with_name(f".{target.name}.part"))


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_a_file_gets_its_name_when_it_is_whole(target: Path) -> None:
    with new_file(target) as draft:
        draft.write_text("all of it")
        assert not target.exists()
    assert target.read_text() == "all of it"
    assert target.stat().st_mode & 0o777 == 0o600
    assert names(target.parent) == {"whole"}


def test_a_file_that_is_there_is_left_as_it_is(target: Path) -> None:
    killed_before_the_draft_was_removed(target, "the first")
    with (
        pytest.raises(ConfigurationError, match="already exists"),
        new_file(target) as draft,
    ):
        draft.write_text("the second")
    assert target.read_text() == "the first"
    assert names(target.parent) == {"whole"}


def test_what_a_kill_has_left_changes_no_file_that_got_another_name_since(target: Path) -> None:
    """As `secret.key.new`, which becomes `secret.key`: the next new key must not be written into
    the one that is in use."""
    killed_before_the_draft_was_removed(target, "the key that is in use")
    used = target.rename(target.with_name("used"))
    with new_file(target) as draft:
        draft.write_text("the key that comes next")
    assert used.read_text() == "the key that is in use"
    assert target.read_text() == "the key that comes next"
    assert names(target.parent) == {"whole", "used"}


def test_what_a_kill_has_left_of_a_half_written_file_is_no_part_of_the_next(target: Path) -> None:
    target.with_name(".whole.part").write_text("half of something much longer")
    with new_file(target) as draft:
        assert draft.read_text() == ""
        draft.write_text("whole")
    assert target.read_text() == "whole"
