"""docs/writing-an-app.md says what is: excerpts stand in the app, sessions and requests run."""

from __future__ import annotations

import doctest
import json
import re
import shlex
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from fw_actors.config import load
from tests.commands import run_command
from tests.live_site import LiveSite
from tests.site_kit import inline_site

ROOT: Final = Path(__file__).parents[2]
TEXT: Final = (ROOT / "docs" / "writing-an-app.md").read_text()
APP: Final = (ROOT / "examples" / "notes" / "__init__.py").read_text()


def fences(kind: str) -> list[str]:
    """Return the blocks of a kind, in order."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_the_page_has_no_block_that_is_not_tried() -> None:
    kinds = set(re.findall(r"^```(\w+)$", TEXT, re.MULTILINE))
    assert kinds == {"json", "sh", "python", "pycon", "http", "text"}


@pytest.mark.parametrize("excerpt", fences("python"))
def test_an_excerpt_stands_in_the_app(excerpt: str) -> None:
    assert excerpt in APP


def test_the_configuration_loads(tmp_path: Path) -> None:
    (block,) = fences("json")
    (tmp_path / "fw.json").write_text(block)
    assert load({}, tmp_path).apps == ("notes",)


def test_the_first_step_makes_what_the_page_shows(tmp_path: Path) -> None:
    """Word for word: the policy, and the module that the excerpts are of (C-112)."""
    first = fences("text")[0].splitlines()
    assert first == ["fw init desk --app notes", "cd desk"]
    done = run_command(tmp_path, {}, *shlex.split(first[0])[1:])
    assert done.exit_code == 0, done.output
    (block,) = fences("json")
    assert json.loads((tmp_path / "desk" / "fw.json").read_text()) == json.loads(block)
    made = (tmp_path / "desk" / "notes.py").read_text()
    assert [each for each in fences("python") if each not in made] == []


async def test_the_sessions_run_each_in_its_transaction(tmp_path: Path) -> None:
    async with inline_site(tmp_path, apps=("examples.notes",)) as site:
        for session in fences("pycon"):
            assert await site.write("Administrator", partial(failures, session)) == ""


def failures(session: str, fw: Any) -> str:
    """Run a session; what it printed that the page does not say."""
    told: list[str] = []
    test = doctest.DocTestParser().get_doctest(session, {"fw": fw}, "session", None, 0)
    doctest.DocTestRunner(verbose=False).run(test, out=told.append)
    return "".join(told)


def test_a_session_that_says_something_else_would_fail() -> None:
    assert "Expected:" in failures(">>> 1 + 1\n3\n", None)


def test_the_commands_and_the_requests_answer_as_the_page_says(tmp_path: Path) -> None:
    assert run_command(tmp_path, {}, "init", "--app", "notes").exit_code == 0
    with LiveSite(tmp_path, apps=("notes",)) as site:
        site.add_manager()
        for command in fences("sh"):
            words = shlex.split(command)
            assert words[0] == "fw"
            site.fw(*words[1:])
        site.start()
        with site.client() as client:
            for block in fences("http"):
                first, *rest = block.splitlines()
                method, path = first.split(" ", 1)
                *body, status, answer = rest
                reply = client.request(method, path, json=json.loads(body[0]) if body else None)
                assert reply.status_code == int(status), reply.text
                assert holds(reply.json(), json.loads(answer)), reply.text


def holds(found: Any, wanted: Any) -> bool:
    """Whether a JSON value has all that is wanted of it."""
    if isinstance(wanted, dict):
        return all(key in found and holds(found[key], item) for key, item in wanted.items())
    return bool(found == wanted)
