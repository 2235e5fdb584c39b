"""The contents of the pages' files, and what they must lack: scripts, forms, browser storage."""

from __future__ import annotations

import json
import re
from pathlib import Path

import web.pages

PAGES = Path(web.pages.__file__).parent
OWN_SCRIPTS = {
    path.name: path.read_text()
    for path in sorted((PAGES / "static").glob("*.js"))
    if not path.name.startswith("htmx-")
}
TEMPLATES = {path.name: path.read_text() for path in sorted((PAGES / "templates").glob("*.html"))}

MAKES_HTML_OF_TEXT = re.compile(
    r"\.(inner|outer)HTML|insertAdjacentHTML|document\.write|createContextualFragment|"
    r"setHTMLUnsafe|DOMParser|srcdoc|\beval\(|\bFunction\("
)
KEPT = re.compile(r"\b(\w+Storage)\.setItem\((\w+)")
OTHER_STORAGE = re.compile(
    r"indexedDB|document\.cookie|caches\.|\w+Storage\[|\w+Storage\.(?!\w+Item\()"
)
TO_OTHERS = re.compile(r"postMessage|BroadcastChannel|MessageChannel|SharedWorker|serviceWorker")
PLUGINS = re.compile(r"<(object|embed|applet)\b", re.IGNORECASE)
FROM_ELSEWHERE = re.compile(r"""(?:src|href|action)=["']?(?:https?:)?//|\bfetch\(["'`]https?:""")
BY_NAME = re.compile(r"(\w+)\[([^\]'\"0-9][^\]]*)\] = ")
PASSWORD_NAMES = {"pwd", "password", "current"}
INPUT = re.compile(r"<input\b[^>]*>")
ATTRIBUTE = re.compile(r'([\w-]+)="([^"]*)"')


def inputs() -> list[dict[str, str]]:
    """The attributes of every input of every template."""
    return [
        dict(ATTRIBUTE.findall(tag)) for text in TEMPLATES.values() for tag in INPUT.findall(text)
    ]


def test_page_sources_are_found() -> None:
    assert {"app.js", "login.js"} <= set(OWN_SCRIPTS)
    assert {"base.html", "login.html"} <= set(TEMPLATES)


def test_scripts_make_no_html_or_code_from_text() -> None:
    found = {name: MAKES_HTML_OF_TEXT.findall(text) for name, text in OWN_SCRIPTS.items()}
    assert {name: hits for name, hits in found.items() if hits} == {}


def test_templates_escape_every_value() -> None:
    found = [name for name, text in TEMPLATES.items() if re.search(r"\|\s*safe\b|autoescape", text)]
    assert found == []


def test_scripts_store_only_a_notice_a_run_number_and_a_choice() -> None:
    kept = {(where, key) for text in OWN_SCRIPTS.values() for where, key in KEPT.findall(text)}
    assert kept == {
        ("sessionStorage", "FLASH"),
        ("localStorage", "CLOSED"),
        ("localStorage", "KEYS_OFF"),  # whether single keys are switched off
    }
    others = [name for name, text in OWN_SCRIPTS.items() if OTHER_STORAGE.search(text)]
    assert others == []


def test_htmx_is_without_history_eval_and_other_sites() -> None:
    config = re.search(r"name=\"htmx-config\" content='([^']+)'", TEMPLATES["desk.html"])
    assert config is not None
    expected = {"allowEval": False, "historyCacheSize": 0, "selfRequestsOnly": True}
    assert expected.items() <= json.loads(config[1]).items()


def test_scripts_talk_to_no_other_window() -> None:
    assert [name for name, text in OWN_SCRIPTS.items() if TO_OTHERS.search(text)] == []


def test_templates_need_no_plugin() -> None:
    found = [name for name, text in (TEMPLATES | OWN_SCRIPTS).items() if PLUGINS.search(text)]
    assert found == []


def test_templates_load_nothing_from_elsewhere() -> None:
    found = [
        name for name, text in (TEMPLATES | OWN_SCRIPTS).items() if FROM_ELSEWHERE.search(text)
    ]
    assert found == []


def test_scripts_set_properties_named_by_the_form_only() -> None:
    """A property that an answer could name might be `__proto__`; those of a form come of fields."""
    named = {
        (name, target, key)
        for name, text in OWN_SCRIPTS.items()
        for target, key in BY_NAME.findall(text)
    }
    assert {(name, target) for name, target, _ in named} == {("document.js", "values")}
    assert {key for _, _, key in named} == {"input.name", "table.dataset.table"}


def test_password_fields_are_hidden_and_named_for_managers() -> None:
    fields = [each for each in inputs() if each.get("name") in PASSWORD_NAMES]
    assert len(fields) == 4
    for field in fields:
        assert field["type"] == "password"
        assert field["autocomplete"] in ("current-password", "new-password")


def test_password_fields_allow_pasting() -> None:
    hindered = re.compile(r"onpaste|['\"]paste['\"]|autocomplete=\"off\"[^>]*type=\"password\"")
    found = [name for name, text in (TEMPLATES | OWN_SCRIPTS).items() if hindered.search(text)]
    assert found == []


def test_templates_of_the_desk_offer_to_sign_out() -> None:
    """All of them extend one template, which has the button."""
    guests = {"login.html", "forgot.html", "link.html", "error.html"}
    pages = {name for name, text in TEMPLATES.items() if "{% block title %}" in text}
    frames = {"base.html", "desk.html", "entrance.html"}
    assert 'id="sign-out"' in TEMPLATES["desk.html"]
    assert '"/api/logout"' in OWN_SCRIPTS["app.js"]
    for name in pages - guests - frames:
        assert re.match(r'\{% extends "(desk|document)\.html" %\}', TEMPLATES[name]), name
