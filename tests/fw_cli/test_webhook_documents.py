"""Webhooks on the command line (C-151 to C-154)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fw_actors.documents import query
from fw_actors.documents.core import Webhook
from fw_actors.documents.fields import Int
from fw_actors.rules.signing import key_of
from fw_cli.values import WholeNumber
from fw_cli.webhook_documents import add as add_command
from tests.fw_cli.conftest import CommandLine

URL = "https://erp.example/hook"


@pytest.fixture
def erp(fw: CommandLine) -> dict[str, Any]:
    """The Webhook erp, as printed by `add`."""
    add = ("webhooks", "add", URL, "--name", "erp", "--event", "a.b", "--json")
    made: dict[str, Any] = fw.json(*add)
    return made


def shown(fw: CommandLine) -> dict[str, Any]:
    found: dict[str, Any] = fw.json("webhooks", "show", "erp", "--json")
    return found


def stored_secret(fw: CommandLine) -> str:
    return str(fw.json("eval", 'fw.get_doc("Webhook", "erp").vault("secret")'))


def audited(fw: CommandLine) -> list[tuple[str, str]]:
    rows = fw.json(
        "eval", 'fw.get_all("Audit Event", fields=["action", "actor"], order_by="creation asc")'
    )
    return [(row["action"], row["actor"]) for row in rows]


def test_add_creates_webhook_with_new_secret(fw: CommandLine, erp: dict[str, Any]) -> None:
    assert (erp["name"], erp["inUse"]) == ("erp", None)
    assert len(key_of(erp["secret"])) == 32
    assert stored_secret(fw) == erp["secret"]
    found = shown(fw)
    assert (found["url"], found["events"], found["enabled"]) == (URL, "a.b", 1)
    assert erp["secret"] not in json.dumps(found)
    assert audited(fw) == [("webhook.create", "Administrator")]


def test_add_watches_events_of_a_doctype(fw: CommandLine) -> None:
    add = ("webhooks", "add", URL, "--name", "erp", "--doctype", "User", "--on", "SAVED")
    fw.done(*add, "--disabled", "--on", "deleted", "--set", "timeout=7", "--title", "ERP")
    found = shown(fw)
    assert found["events"] == "User saved, deleted"
    assert (found["enabled"], found["timeout"], found["state"]) == (0, 7, "disabled")
    assert "ERP" in fw.done("webhooks", "show")


def test_add_and_edit_warn_of_events_that_never_occur(fw: CommandLine) -> None:
    """The specification does not refuse such a Webhook (B-16)."""
    add = ("webhooks", "add", URL, "--name", "erp", "--doctype", "User", "--on", "submitted")
    completed = fw.run(*add, "--json")
    assert completed.stderr == "warning: User is not submittable: on_submit never occurs.\n"
    assert (completed.exit_code, json.loads(completed.stdout)["name"]) == (0, "erp")
    edit = ("webhooks", "edit", "erp", "--on", "submitted", "--on", "cancelled")
    assert "on_submit and on_cancel never occur.\n" in fw.run(*edit).stderr
    fw.done("webhooks", "edit", "erp", "--on", "saved")


def test_add_and_edit_accept_limits_of_receiver(fw: CommandLine, erp: dict[str, Any]) -> None:
    limits = ("--rate-limit", "10", "--ordering", "DOCUMENT")
    fw.done("webhooks", "edit", erp["name"], *limits)
    found = shown(fw)
    assert (found["rate_limit"], found["ordering"]) == (10, "document")
    fw.done("webhooks", "edit", erp["name"], "--rate-limit", "0", "--ordering", "none")
    found = shown(fw)
    assert (found["rate_limit"], found["ordering"]) == (0, "none")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ((), 2),
        (("--event", "a.b", "--rate-limit", "-1"), 2),
        (("--event", "a.b", "--ordering", "strict"), 2),
        (("--event", "a.b", "--client-certificate", "missing"), 1),
        (("--event", "A B"), 1),
        (("--event", "a.b", "--on", "saved"), 2),
        (("--doctype", "Nothing", "--on", "saved"), 1),
        (("--event", "a.b", "--max-attempts", "11"), 2),
        (("--event", "a.b", "--timeout", "61"), 2),
        (("--on", "saved"), 2),
        (("--event", "a.b", "--set", "timeout=61"), 1),
        (("--event", "a.b", "--set", "timeout=" + 2000 * "["), 1),
        (("--event", "a.b", "--set", "secret=x"), 2),
        (("--event", "a.b", "--set", "enabled=0"), 2),
        (("--event", "a.b", "--set", "timeout"), 2),
        (("--event", "a.b", "--set", "colour=1"), 1),
        (("--event", "a.b", "--secret-env", "MISSING"), 1),
        (("--event", "a.b", "--secret-env", "KEY"), 1),
    ],
)
def test_add_refuses_same_values_as_http(
    fw: CommandLine, options: tuple[str, ...], code: int
) -> None:
    result = fw.run("webhooks", "add", URL, *options)
    assert result.exit_code == code, result.output
    assert "internal error" not in result.stderr
    assert fw.json("webhooks", "show", "--json") == []


def test_show_reads_webhooks_in_pages(fw: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any, and with more than one page of them (C-176)."""
    monkeypatch.setattr(query, "WALK_ROWS", 2)
    assert fw.json("webhooks", "show", "--json") == []
    for name in "cab":
        fw.done("webhooks", "add", URL, "--name", name, "--event", "a.b")
    assert [row["name"] for row in fw.json("webhooks", "show", "--json")] == ["a", "b", "c"]
    assert fw.done("webhooks", "show").count(URL) == 3


def test_given_secret_is_not_printed(fw: CommandLine) -> None:
    """Secrets come from stdin or the environment, and never from arguments (C-151)."""
    add = ("webhooks", "add", URL, "--event", "a.b", "--name")
    printed = fw.done(*add, "erp", "--secret-stdin", stdin="from-standard-input-of-32-bytes-0\n")
    assert stored_secret(fw) == "from-standard-input-of-32-bytes-0"
    printed += fw.done(
        *add, "crm", "--secret-env", "crm", FW_SECRET_CRM="from-environment-of-32-bytes-000"
    )
    assert "from-" not in printed
    assert fw.run(*add, "x", "--secret-stdin", "--secret-env", "crm").exit_code == 2


@pytest.mark.parametrize("secret", ["abc", "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=="])
def test_short_secret_is_accepted_with_warning(
    fw: CommandLine, erp: dict[str, Any], secret: str
) -> None:
    add = ("webhooks", "add", URL, "--event", "a.b", "--secret-stdin")
    for command in (add, ("webhooks", "rotate-secret", "erp", "--secret-stdin", "--yes")):
        result = fw.run(*command, stdin=f"{secret}\n")
        assert result.exit_code == 0
        assert result.stderr.startswith("warning: the secret has only ")
        assert secret not in result.output


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("a b", "fw: a variable's name must match FW_SECRET_[A-Z0-9_]+\n"),
        ("nope", "fw: FW_SECRET_NOPE is not set in this process's environment\n"),
        ("key", "fw: FW_SECRET_KEY is the site's own key; a Webhook must not use it\n"),
    ],
)
def test_secret_env_explains_refused_variable(
    fw: CommandLine, variable: str, expected: str
) -> None:
    add = ("webhooks", "add", URL, "--event", "a.b", "--secret-env", variable)
    assert fw.refused(*add) == expected


@pytest.mark.parametrize(
    ("host", "warned"), [("10.0.0.1", True), ("[fd00::1]", True), ("erp.example", False)]
)
def test_add_warns_of_address_that_policy_denies(fw: CommandLine, host: str, warned: bool) -> None:
    (fw.folder / "fw.json").write_text('{"ops": {"outgoing": {"private": "deny"}}}')
    result = fw.run("webhooks", "add", f"https://{host}/x", "--event", "a.b")
    assert result.exit_code == 0
    assert ("warning: its deliveries will be refused" in result.stderr) is warned


def test_limits_of_options_are_those_of_fields() -> None:
    for field in ("timeout", "max_attempts", "rate_limit"):
        (option,) = (each for each in add_command.params if each.name == field)
        meta = Webhook.meta.fields[field]
        assert isinstance(option.type, WholeNumber)
        assert isinstance(meta, Int)
        assert (option.type.min, option.type.max) == (meta.minimum, meta.maximum)


def test_add_refuses_taken_webhook_name(fw: CommandLine, erp: dict[str, Any]) -> None:
    add = ("webhooks", "add", "https://x.example/", "--name", "erp", "--event", "c")
    assert "already exists" in fw.refused(*add)


def test_edit_changes_only_given_fields(fw: CommandLine, erp: dict[str, Any]) -> None:
    fw.done("webhooks", "edit", "erp", "--timeout", "20", "--doctype", "User", "--on", "saved")
    found = shown(fw)
    assert (found["timeout"], found["events"], found["url"]) == (20, "User saved", URL)
    assert fw.run("webhooks", "edit", "erp").exit_code == 2
    assert stored_secret(fw) == erp["secret"]


def test_enable_and_disable_change_webhook_state(fw: CommandLine, erp: dict[str, Any]) -> None:
    fw.done("webhooks", "disable", "erp")
    assert shown(fw)["enabled"] == 0
    assert fw.json("eval", 'fw.webhooks.emit("a.b", {})') == {"deliveries": []}
    fw.done("webhooks", "enable", "erp")
    assert shown(fw)["enabled"] == 1


def test_rotate_secret_requires_confirmation(fw: CommandLine, erp: dict[str, Any]) -> None:
    assert "--yes" in fw.refused("webhooks", "rotate-secret", "erp")
    assert stored_secret(fw) == erp["secret"]
    report = fw.json("webhooks", "rotate-secret", "erp", "--yes", "--json")
    assert stored_secret(fw) == report["secret"] != erp["secret"]
    assert ("webhook.rotate", "Administrator") in audited(fw)


def test_rotate_secret_states_the_end_of_an_overlap(fw: CommandLine, erp: dict[str, Any]) -> None:
    rotate = ("webhooks", "rotate-secret", "erp", "--yes", "--json")
    assert "oldSecretUntil" not in fw.json(*rotate)
    until = fw.json(*rotate, "--overlap", "2")["oldSecretUntil"]
    assert fw.json("eval", 'fw.get_doc("Webhook", "erp").old_secret_until') == until


def test_add_suggests_similar_doctype(fw: CommandLine) -> None:
    add = ("webhooks", "add", "https://x.example/", "--doctype", "Usr", "--on", "inserted")
    assert fw.refused(*add) == "fw: There is no DocType Usr. Did you mean User?\n"


def test_rotate_secret_takes_secret_from_stdin(fw: CommandLine, erp: dict[str, Any]) -> None:
    rotate = ("webhooks", "rotate-secret", "erp", "--secret-stdin", "--yes")
    assert "first line of stdin is empty" in fw.refused(*rotate, stdin="\n")
    assert stored_secret(fw) == erp["secret"]
    assert (
        fw.done(*rotate, stdin="given-on-stdin-and-of-32-bytes-0\n")
        == "replaced the signing secret of erp\n"
    )
    assert stored_secret(fw) == "given-on-stdin-and-of-32-bytes-0"


def test_set_names_option_for_unsupported_field(fw: CommandLine) -> None:
    output = fw.run("webhooks", "edit", "erp", "--set", "enabled=0").stderr
    assert "--set does not take enabled: use fw webhooks enable or disable." in output
    assert "use --on saved" in fw.run("webhooks", "edit", "erp", "--set", "on_update=1").stderr


def test_set_suggests_similar_field(fw: CommandLine, erp: dict[str, Any]) -> None:
    refused = fw.refused("webhooks", "edit", "erp", "--set", "timout=3")
    assert refused == "fw: Webhook has no field timout. Did you mean timeout?\n"


def test_show_takes_title_that_one_webhook_has(fw: CommandLine, erp: dict[str, Any]) -> None:
    """Other commands, which may change or delete, suggest the name (C-154)."""
    fw.done("webhooks", "edit", "erp", "--title", "Orders to ERP")
    assert fw.json("webhooks", "show", "Orders to ERP", "--json")["name"] == "erp"
    near = "Did you mean erp (Orders to ERP)?\n"
    assert fw.refused("webhooks", "pause", "Orders to ERP").endswith(near)
    assert fw.refused("webhooks", "show", "Order to ERP").endswith(near)
    add = ("webhooks", "add", URL, "--event", "a.b", "--title", "Orders to ERP")
    fw.done(*add, "--name", "erp2")
    refused = fw.refused("webhooks", "show", "Orders to ERP")
    assert refused == (
        "fw: There is no Webhook Orders to ERP. "
        "Did you mean erp2 (Orders to ERP) or erp (Orders to ERP)?\n"
    )
    fw.done("webhooks", "edit", "erp2", "--title", "erp")
    assert fw.json("webhooks", "show", "erp", "--json")["name"] == "erp"


def test_suggestion_names_webhook_once_if_name_and_title_are_alike(
    fw: CommandLine, erp: dict[str, Any]
) -> None:
    fw.done("webhooks", "edit", "erp", "--title", "ERP1")
    refused = fw.refused("webhooks", "show", "erp2")
    assert refused == "fw: There is no Webhook erp2. Did you mean erp (ERP1)?\n"


def test_add_asks_for_events_in_the_words_of_its_options(fw: CommandLine) -> None:
    completed = fw.run("webhooks", "add", URL, "--doctype", "User")
    assert completed.exit_code == 2
    assert "Error: --on is required with --doctype.\n" in completed.stderr


def test_show_says_that_count_of_waiting_deliveries_is_limited(
    fw: CommandLine, erp: dict[str, Any]
) -> None:
    """B-241: at most 1,000 are counted."""
    emit = 'len(fw.webhooks.emit_many([{"name": "a.b", "data": {}}] * 1000))'
    assert fw.json("eval", emit, "--commit") == 1000
    assert "1000 or more" in fw.done("webhooks", "show")
    assert "1000 or more" in fw.done("webhooks", "show", "erp")
    assert shown(fw)["waiting"] == 1000


def test_show_prints_secret_as_configured(fw: CommandLine, erp: dict[str, Any]) -> None:
    lines = fw.done("webhooks", "show", "erp").splitlines()
    assert ["secret", "configured"] in [line.split() for line in lines]


def test_webhook_delete_requires_confirmation(fw: CommandLine, erp: dict[str, Any]) -> None:
    """A destructive command asks for confirmation; a script passes --yes (C-153)."""
    assert "--yes" in fw.refused("webhooks", "delete", "erp")
    assert fw.json("webhooks", "delete", "erp", "--yes", "--json")["name"] == "erp"
    assert fw.json("webhooks", "show", "--json") == []


@pytest.mark.parametrize("command", ["show", "edit", "enable", "disable", "delete"])
def test_misspelt_webhook_name_is_answered_with_suggestion(
    fw: CommandLine, erp: dict[str, Any], command: str
) -> None:
    """Near misses of names are suggested (C-157)."""
    more = ("--timeout", "3") if command == "edit" else ()
    output = fw.refused("webhooks", command, "erpp", *more)
    assert "Did you mean erp?" in output


@pytest.mark.parametrize(
    "args",
    [
        ("list", "--webhook"),
        ("attempts", "--webhook"),
        ("replay", "--webhook"),
        ("cancel", "--yes", "--webhook"),
        ("erase", "--yes", "--webhook"),
        ("pause",),
        ("resume",),
        ("test",),
    ],
)
def test_misspelt_webhook_option_is_answered_with_suggestion(
    fw: CommandLine, args: tuple[str, ...]
) -> None:
    """An empty list would suggest that nothing had been sent (C-157)."""
    fw.done("webhooks", "add", "http://127.0.0.1:9/", "--event", "a.b", "--name", "orders")
    assert fw.done("webhooks", "list", "--webhook", "orders", "--json") == "[]\n"
    fw.done("webhooks", "emit", "a.b")  # what another Webhook has sent is no record of this one
    said = fw.refused("webhooks", *args, "ordres")
    assert said == "fw: There is no Webhook ordres. Did you mean orders?\n"
