"""`fw apply`, `fw diff` and `fw export` (C-168 to C-170)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fw_actors.errors import OverloadedError
from fw_actors.ops import declared_state
from fw_actors.ops.declared_state import HIDDEN
from tests.fw_cli.conftest import CommandLine

SITE = """
roles = ["Clerk"]

[webhooks.erp]
url = "https://erp.example/hook"
custom_event = "invoice.paid"
secret = "FW_SECRET_ERP"

[webhooks.crm]
url = "https://crm.example/hook"
webhook_doctype = "User"
on_update = true
timeout = 20
secret = "FW_SECRET_CRM"

[users.ann]
email = "ann@x.test"
fullName = "Ann"
roles = ["Clerk", "Event Publisher"]

[users.bob]
email = "bob@x.test"
enabled = false
scopes = [{ allow = "User", for_value = "ann" }]
"""
SECRETS = {"FW_SECRET_ERP": "first-secret-of-erp", "FW_SECRET_CRM": "first-secret-of-crm"}


@pytest.fixture
def site(fw: CommandLine) -> Path:
    file = fw.folder / "site.toml"
    file.write_text(SITE)
    fw.environ.update(SECRETS)
    return file


def changes(fw: CommandLine, *args: str) -> list[tuple[str, str]]:
    plan = fw.json(*args, "--json")
    return [(each["change"], each["doctype"]) for each in plan["changes"]]


def test_apply_creates_declared_site_once(fw: CommandLine, site: Path) -> None:
    """Applying a file twice changes nothing the second time (C-168)."""
    assert "--yes" in fw.run("apply", "site.toml").stderr
    assert fw.json("user", "list", "--json") == []
    plan = fw.done("apply", "site.toml", "--yes")
    assert '+ Webhook erp: url "https://erp.example/hook"' in plan
    assert "+ User Permission bob: User ann" in plan
    assert "first-secret" not in plan
    assert fw.done("apply", "site.toml") == "nothing to change\n", "and nothing to confirm"
    ann, bob = fw.json("user", "list", "--json")
    assert (ann["roles"], bob["enabled"]) == (["Clerk", "Event Publisher"], False)
    assert (ann["fullName"], bob["fullName"]) == ("Ann", "")
    crm, erp = fw.json("webhooks", "show", "--json")
    assert (crm["name"], crm["timeout"], crm["events"]) == ("crm", 20, "User saved")
    assert erp["events"] == "invoice.paid"
    stored = 'fw.get_doc("Webhook", "erp").vault("secret")'
    assert fw.json("eval", stored) == SECRETS["FW_SECRET_ERP"]
    actors = {(each["actor"]) for each in fw.json("audit", "--json")}
    assert actors == {"Administrator"}


def test_diff_lists_only_differences(fw: CommandLine, site: Path) -> None:
    fw.done("apply", "site.toml", "--yes")
    fw.done("webhooks", "edit", "crm", "--timeout", "30", "--title", "CRM")
    fw.done("user", "role", "ann", "--remove", "Clerk")
    fw.environ["FW_SECRET_ERP"] = "second-secret-of-erp"
    output = fw.done("diff", "site.toml")
    assert output.splitlines() == [
        '~ User ann: roles ["Event Publisher"] → ["Clerk","Event Publisher"]',
        "~ Webhook erp: secret",
        "~ Webhook crm: timeout 30 → 20",
    ]
    assert fw.run("diff", "site.toml", "--exit-code").exit_code == 1
    fw.done("apply", "site.toml", "--yes")
    assert fw.run("diff", "site.toml", "--exit-code").exit_code == 0
    (crm,) = (row for row in fw.json("webhooks", "show", "--json") if row["name"] == "crm")
    assert crm["title"] == "CRM"


def test_diff_shows_whether_a_secret_is_new_or_replaced(fw: CommandLine, site: Path) -> None:
    def secrets() -> list[tuple[str, object, object]]:
        changes = fw.json("diff", "site.toml", "--json")["changes"]
        fields = [(each["name"], field) for each in changes for field in each["fields"]]
        return [(n, f["old"], f["new"]) for n, f in fields if f["field"] == "secret"]

    assert secrets() == [("erp", None, HIDDEN), ("crm", None, HIDDEN)]
    fw.done("apply", "site.toml", "--yes")
    fw.environ["FW_SECRET_ERP"] = "second-secret-of-erp"
    assert secrets() == [("erp", HIDDEN, HIDDEN)]


def test_diff_refuses_wrong_type_for_stored_webhook(fw: CommandLine, site: Path) -> None:
    fw.done("apply", "site.toml", "--yes")
    refused = refusal(fw, {"webhooks": {"crm": {"timeout": "1"}}})
    assert "webhooks.crm: timeout must be a whole number" in refused


def test_apply_replaces_scopes_by_declared_scopes(fw: CommandLine, site: Path) -> None:
    fw.done("apply", "site.toml", "--yes")
    site.write_text('[users.bob]\nscopes = [{allow = "User", for_value = "bob"}]')
    deleted, created = fw.json("diff", "site.toml", "--json")["changes"]
    values = {"user": "bob", "allow": "User", "for_value": "ann"}
    assert {each["field"]: each["old"] for each in deleted["fields"]} == values
    assert {each["field"]: each["new"] for each in created["fields"]} == {
        **values, "for_value": "bob",
    }  # fmt: skip
    assert {each["new"] for each in deleted["fields"]} == {None}
    assert {each["old"] for each in created["fields"]} == {None}
    assert changes(fw, "diff", "site.toml") == [
        ("delete", "User Permission"), ("create", "User Permission"),
    ]  # fmt: skip
    lines = fw.done("apply", "site.toml", "--yes").splitlines()
    assert lines[:2] == ["- User Permission bob: User ann", "+ User Permission bob: User bob"]
    rows = fw.json("eval", 'fw.get_all("User Permission", fields=["for_value"])')
    assert [row["for_value"] for row in rows] == ["bob"]


@pytest.mark.parametrize(
    "wanted",
    [
        {"ann": {"roles": []}, "bob": {"roles": ["System Manager"]}},
        {"ann": {"enabled": False}, "bob": {"roles": ["System Manager"]}},
        {"ann": {"roles": []}, "cy": {"scopes": []}},
        {"ann": {"scopes": [{"allow": "User", "for_value": "bob"}]}, "cy": {"scopes": []}},
        {"ann": {"enabled": False}, "dan": {"enabled": True}},
        {"ann": {"roles": []}, "eve": {"email": "eve@x.test", "roles": ["System Manager"]}},
    ],
)
def test_apply_replaces_last_system_manager(fw: CommandLine, wanted: dict[str, Any]) -> None:
    """In any order of the file, as the site always has one (C-168)."""
    manager = {"roles": ["System Manager"]}
    scoped = {**manager, "scopes": [{"allow": "User", "for_value": "cy"}]}
    users: dict[str, dict[str, Any]] = {
        "ann": manager,
        "bob": {},
        "cy": scoped,
        "dan": {**manager, "enabled": False},
    }
    before = {name: {"email": f"{name}@x.test", **more} for name, more in users.items()}
    for state in (before, wanted):
        (fw.folder / "site.json").write_text(json.dumps({"users": state}))
        assert changes(fw, "diff", "site.json") != []
        fw.done("apply", "site.json", "--yes")
    assert changes(fw, "diff", "site.json") == []


def test_apply_passes_emails_on(fw: CommandLine) -> None:
    """In any order of the file; a new account may get one too (C-168)."""
    for emails in (
        {"ann": "desk@x.test", "bob": "ann@x.test", "cy": "cy@x.test"},
        {"dan": "Desk@x.test", "bob": "CY@x.test", "ann": "ann@x.test", "cy": "other@x.test"},
        {"eve": "desk@x.test", "dan": "dan@x.test", "bob": "bob@x.test", "cy": "cy@x.test",
         "ann": "ann@x.test"},
    ):  # fmt: skip
        state = {"users": {name: {"email": email} for name, email in emails.items()}}
        (fw.folder / "site.json").write_text(json.dumps(state))
        fw.done("apply", "site.json", "--yes")
    stored = {name: user["email"] for name, user in fw.json("export")["users"].items()}
    assert stored == emails


def test_apply_frees_email_of_account_that_ceases_to_be_manager(fw: CommandLine) -> None:
    """The e-mail must be free before bob gets it, and bob a manager before ann ceases (C-168)."""
    manager = ["System Manager"]
    before = {
        "ann": {"email": "a@x.test", "roles": manager},
        "bob": {"email": "b@x.test", "roles": []},
    }
    after = {
        "ann": {"email": "c@x.test", "roles": [], "fullName": "Ann"},
        "bob": {"email": "A@x.test", "roles": manager},
    }
    (fw.folder / "site.json").write_text(json.dumps({"users": before}))
    fw.done("apply", "site.json", "--yes")
    (fw.folder / "site.json").write_text(json.dumps({"users": after}))
    assert fw.done("apply", "site.json", "--yes").splitlines() == [
        '~ User ann: email "a@x.test" → "c@x.test", fullName null → "Ann"',
        '~ User bob: email "b@x.test" → "A@x.test", roles [] → ["System Manager"]',
        '~ User ann: roles ["System Manager"] → []',
        "applied 3 changes",
    ]
    assert changes(fw, "diff", "site.json") == []


def test_apply_refuses_to_swap_emails(fw: CommandLine) -> None:
    users = {"ann": {"email": "ann@x.test"}, "bob": {"email": "bob@x.test"}}
    (fw.folder / "site.json").write_text(json.dumps({"users": users}))
    fw.done("apply", "site.json", "--yes")
    swapped = {"ann": users["bob"], "bob": users["ann"]}
    assert "Another account has this email" in refusal(fw, {"users": swapped})


def test_apply_refuses_to_remove_last_system_manager(fw: CommandLine) -> None:
    ann = {"email": "ann@x.test", "roles": ["System Manager"]}
    (fw.folder / "site.json").write_text(json.dumps({"users": {"ann": ann}}))
    fw.done("apply", "site.json", "--yes")
    refused = refusal(fw, {"users": {"ann": {"roles": []}}})
    assert refused.startswith("fw: User ann: The last enabled System Manager")


def test_export_can_be_applied_without_the_app_of_its_doctypes(fw: CommandLine) -> None:
    """A Webhook of a missing DocType may be disabled and changed (B-16)."""
    (fw.folder / "fw.json").write_text('{"apps": ["examples.notes"]}')
    fw.environ["FW_SECRET_HOOK"] = "first-secret-of-hook"
    hook = {"url": "https://x.example/", "webhook_doctype": "Note", "on_insert": 1, "enabled": 0}
    ann = {"email": "ann@x.test", "scopes": [{"allow": "Notebook", "for_value": "first"}]}
    fw.done("eval", "--commit", 'fw.new_doc("Notebook", title="first").insert().name')
    state: dict[str, Any] = {
        "webhooks": {"hook": {**hook, "secret": "FW_SECRET_HOOK"}},
        "users": {"ann": ann},
    }
    (fw.folder / "site.json").write_text(json.dumps(state))
    fw.done("apply", "site.json", "--yes")
    (fw.folder / "fw.json").write_text("{}")
    (fw.folder / "site.json").write_text(fw.done("export"))
    assert changes(fw, "diff", "site.json") == []
    state["webhooks"]["hook"]["title"] = "Old notes"
    (fw.folder / "site.json").write_text(json.dumps(state))
    assert changes(fw, "apply", "site.json", "--yes") == [("change", "Webhook")]


def test_prune_deletes_undeclared_webhooks(fw: CommandLine, site: Path) -> None:
    fw.done("apply", "site.toml", "--yes")
    site.write_text(SITE.partition("[webhooks.crm]")[0])
    assert changes(fw, "diff", "site.toml") == []
    assert changes(fw, "apply", "site.toml", "--prune", "--yes") == [("delete", "Webhook")]
    assert [row["name"] for row in fw.json("webhooks", "show", "--json")] == ["erp"]


def test_export_declares_whole_site(fw: CommandLine, site: Path) -> None:
    """An export differs neither from its own site nor from one that applied it (C-170)."""
    fw.done("apply", "site.toml", "--yes")
    printed = fw.done("export")
    assert "first-secret" not in printed
    assert json.loads(printed)["users"]["bob"] == {
        "email": "bob@x.test", "fullName": "", "enabled": False, "roles": [],
        "scopes": [{"allow": "User", "for_value": "ann"}],
    }  # fmt: skip
    (fw.folder / "copy.json").write_text(printed)
    assert changes(fw, "diff", "copy.json") == []
    unset = fw.json("diff", "copy.json", "--json")["notes"]
    assert unset == []
    for file in (fw.folder / "data").glob("fw.db*"):
        file.unlink()
    fw.done("apply", "copy.json", "--yes")
    assert fw.done("export") == printed
    del fw.environ["FW_SECRET_CRM"]
    report = fw.json("diff", "copy.json", "--json")
    assert report == {
        "changes": [],
        "notes": ["webhooks.crm: FW_SECRET_CRM is not set; the secret stays."],
    }


def test_apply_creates_scopes_after_what_they_name(fw: CommandLine, site: Path) -> None:
    scopes = '{ allow = "Webhook", for_value = "erp" }, { allow = "Role", for_value = "Clerk" }'
    site.write_text(f'{SITE}[users.dan]\nemail = "d@x.test"\nscopes = [{scopes}]')
    assert changes(fw, "apply", "site.toml", "--yes")[-3:] == [("create", "User Permission")] * 3
    printed = fw.done("export")
    (fw.folder / "copy.json").write_text(printed)
    for file in (fw.folder / "data").glob("fw.db*"):
        file.unlink()
    fw.done("apply", "copy.json", "--yes")
    assert fw.done("export") == printed


def test_export_names_another_variable_for_each_secret(fw: CommandLine) -> None:
    """A shared secret would let one receiver sign to another; the site's key is not for Webhooks
    (C-169, C-170)."""
    names = ["a-b", "a.b", "a_b", "a_b_2", "key", "key-file", "é"]
    hooks = dict.fromkeys(names, HOOK)
    fw.environ.update(SECRETS)
    (fw.folder / "hooks.json").write_text(json.dumps({"webhooks": hooks}))
    fw.done("apply", "hooks.json", "--yes")
    exported = fw.json("export")["webhooks"]
    assert {name: exported[name]["secret"] for name in names} == {
        "a-b": "FW_SECRET_A_B",
        "a.b": "FW_SECRET_A_B_2",
        "a_b": "FW_SECRET_A_B_3",
        "a_b_2": "FW_SECRET_A_B_2_2",
        "key": "FW_SECRET_KEY_2",
        "key-file": "FW_SECRET_KEY_FILE_2",
        "é": "FW_SECRET__",
    }


def refusal(fw: CommandLine, declared: Any) -> str:
    (fw.folder / "bad.json").write_text(json.dumps(declared))
    result = fw.run("apply", "bad.json", "--yes")
    assert fw.run("diff", "bad.json").output == result.output
    assert result.exit_code == 1
    assert "Traceback" not in result.stderr
    assert "internal error" not in result.stderr
    assert "whsec_literal" not in result.stdout
    return result.stderr


HOOK = {"url": "https://x.example/", "custom_event": "a.b", "secret": "FW_SECRET_ERP"}


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({"webhoks": {}}, "unknown field webhoks; did you mean webhooks?"),
        ({"webhooks": {"a": {**HOOK, "secret": "whsec_literal"}}}, "must not be in a file"),
        ({"webhooks": {"a": {**HOOK, "secret": "FW_SECRET_NO"}}}, "a: FW_SECRET_NO is not set"),
        ({"webhooks": {"a": {**HOOK, "secret": "FW_SECRET_KEY"}}}, "the site's own key; a"),
        ({"webhooks": {"a": {**HOOK, "secret": "FW_SECRET_key"}}}, "the site's own key; a"),
        ({"webhooks": {"a": {**HOOK, "event": "a"}}}, "event; did you mean custom_event?"),
        (
            {"webhooks": {"a": {"url": "https://x.example/", "custom_event": "a"}}},
            "needs the key secret",
        ),
        ({"webhooks": {"a": {**HOOK, "colour": 1}}}, "no field colour."),
        ({"webhooks": {"a": {**HOOK, "rate_limt": 1}}}, "rate_limt; did you mean rate_limit?"),
        (
            {"webhooks": {"a": {**HOOK, "old_secret": "whsec_literal"}}},
            "only the service writes old_secret",
        ),
        ({"webhooks": {"a": {**HOOK, "timeout": 61}}}, "Webhook a: timeout must be between"),
        (
            {"webhooks": {"a": {**HOOK, "timeout": "1"}}},
            "Webhook a: timeout must be a whole number",
        ),
        ({"webhooks": {"a": {**HOOK, "url": "nowhere"}}}, "URL"),
        ({"users": {"ann": {}}}, "needs an email"),
        (
            {"users": {"ann": {"email": "a@x.test", "roles": ["None"]}}},
            "users.ann: there is no Role None.",
        ),
        ({"users": {"ann": {"email": 1}}}, "users.ann.email must be text."),
        ({"users": {"ann": {"emails": "a@x.test"}}}, "unknown field emails; did you mean email?"),
        ({"webhooks": 1}, "webhooks must be an object."),
        (
            {"users": {"ann": {"email": "a@x.test", "scopes": [{"allow": "X", "for_value": "y"}]}}},
            "users.ann: there is no DocType X.",
        ),
        (
            {"users": {"ann": {"email": "a@x.test"}, "Ann": {"email": "b@x.test"}}},
            "User Ann: Another account has this name.",
        ),
        ([], "The content must be an object."),
    ],
)
def test_unusable_declaration_changes_nothing(
    fw: CommandLine, site: Path, declared: Any, expected: str
) -> None:
    refused = refusal(fw, declared)
    assert expected in refused
    assert "whsec_literal" not in refused
    assert fw.json("export") == {"webhooks": {}, "roles": [], "users": {}}


def test_diff_ends_when_the_store_fails(
    fw: CommandLine, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost connection is no fault of a declared user."""

    def fail(*_: object, **__: object) -> None:
        raise OverloadedError("The connection to the database was lost.")

    monkeypatch.setattr(declared_state, "add_user", fail)
    result = fw.run("diff", "site.toml")
    assert result.exit_code == 1
    assert result.stderr.count("The connection to the database was lost.") == 1
    assert "User ann" not in result.stderr


def test_diff_and_apply_list_all_faults_of_a_plan(fw: CommandLine, site: Path) -> None:
    """Faults of names first; the rules of documents apply to a plan that has none of those."""
    hook = {"url": "https://x.example/", "secret": "FW_SECRET_ERP", "on_insert": True}
    ann = {"email": "a@x.test", "roles": ["Clerc"], "scopes": [{"allow": "Usr", "for_value": "b"}]}
    bad = {
        "roles": ["Clerk"],
        "users": {"ann": ann, "eve": {}},
        "webhooks": {"a": {**hook, "webhook_doctype": "Rol"}, "b": {**hook, "colour": 1}},
    }
    assert refusal(fw, bad).splitlines() == [
        "fw: users.ann: there is no Role Clerc; did you mean Clerk?",
        "fw: users.ann: there is no DocType Usr; did you mean User?",
        "fw: webhooks.a: there is no DocType Rol; did you mean Role?",
        "fw: users.eve: there is no such user; a new one needs an email.",
        "fw: webhooks.b: a Webhook has no field colour.",
    ]
    ann = {"email": "nobody", "scopes": [{"allow": "User", "for_value": "none"}]}
    scopes = [{"allow": "User", "for_value": "none"}, {"allow": "Webhook", "for_value": "a"}]
    bob = {"email": "b@x.test", "scopes": scopes}
    hooks = {"a": {**HOOK, "timeout": 61}, "b": {**HOOK, "url": "nowhere"}}
    lines = refusal(fw, {"users": {"ann": ann, "bob": bob}, "webhooks": hooks}).splitlines()
    begins = ("User ann: ", "Webhook a: timeout", "Webhook b: ", "User Permission bob User none: ")
    assert all(line.startswith(f"fw: {begin}") for line, begin in zip(lines, begins, strict=True))
    assert fw.json("export") == {"webhooks": {}, "roles": [], "users": {}}


def test_plan_is_checked_on_postgresql(fw: CommandLine, site: Path, postgres_url: str) -> None:
    fw.environ["FW_DATABASE"] = postgres_url
    hooks = {"a": {**HOOK, "timeout": 61}, "b": {**HOOK, "url": "nowhere"}}
    assert len(refusal(fw, {"webhooks": hooks}).splitlines()) == 2


def test_diff_and_apply_note_events_that_never_occur(fw: CommandLine, site: Path) -> None:
    """As `fw webhooks add` does; the specification does not refuse such a Webhook (B-16)."""
    note = "webhooks.a: User is not submittable: on_submit never occurs."
    hook = {"url": "https://x.example/", "secret": "FW_SECRET_ERP", "webhook_doctype": "User"}
    declared = {"webhooks": {"a": {**hook, "on_submit": True}, "b": {**hook, "on_update": True}}}
    (fw.folder / "hooks.json").write_text(json.dumps(declared))
    assert fw.json("diff", "hooks.json", "--json")["notes"] == [note]
    assert note in fw.done("apply", "hooks.json", "--yes").splitlines()
    assert fw.done("apply", "hooks.json", "--yes").splitlines() == ["nothing to change", note]
    site.write_text("[webhooks.a]\non_cancel = true")
    both = "webhooks.a: User is not submittable: on_submit and on_cancel never occur."
    assert fw.json("diff", "site.toml", "--json")["notes"] == [both]


@pytest.mark.parametrize(
    ("name", "text"), [("a.toml", "roles = ['A']"), ("a.json", '{"roles": ["A"]}')]
)
def test_declaration_file_may_begin_with_a_byte_order_mark(
    fw: CommandLine, name: str, text: str
) -> None:
    (fw.folder / name).write_text(text, encoding="utf-8-sig")
    assert fw.done("diff", name) == "+ Role A\n"


def test_unreadable_declaration_file_is_named(fw: CommandLine, site: Path) -> None:
    (fw.folder / "bad.toml").write_text("[")
    assert "bad.toml is not valid TOML" in fw.refused("diff", "bad.toml")
    (fw.folder / "bad.json").write_text("{")
    assert "bad.json is not valid JSON" in fw.refused("diff", "bad.json")
    assert "none.json cannot be read" in fw.refused("diff", "none.json")
    for twice in ('{"webhooks": {}, "roles": [], "webhooks": {}}',
                  '{"webhooks": {"a": {"url": "u"}, "b": {}, "a": {}}}',
                  '{"webhooks": {"a": {"url": "u", "timeout": 1, "url": "v"}}}'):  # fmt: skip
        (fw.folder / "bad.json").write_text(twice)
        assert "occurs twice in one object." in fw.refused("diff", "bad.json")
    (fw.folder / "last.json").write_text('{"roles": [], "webhooks": {}, "webhooks": {}}')
    assert "last.json: the key webhooks occurs" in fw.refused("diff", "last.json")
    (fw.folder / "deep.json").write_text('{"webhooks":' * 100_000)
    assert "deep.json is not valid JSON" in fw.refused("diff", "deep.json")
    (fw.folder / "GOOD.TOML").write_text("roles = []")
    assert fw.done("diff", "GOOD.TOML") == "nothing to change\n"
    assert "bad.json: the key url occurs" in fw.refused("apply", "bad.json", "--yes")
    (fw.folder / "bad.toml").write_text("[webhooks.a]\nurl = 'u'\nurl = 'v'")
    assert "bad.toml is not valid TOML: Cannot overwrite" in fw.refused("diff", "bad.toml")
    (fw.folder / "site.yaml").write_text("")
    assert "must end in .toml or .json" in fw.refused("diff", "site.yaml")
    (fw.folder / "more.toml").write_text("[webhooks.erp]\ntimeout = 3")
    assert "Two files declare the Webhook erp" in fw.refused("diff", "site.toml", "more.toml")
