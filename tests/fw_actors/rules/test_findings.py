"""Findings and their report as `doctor --json` shows it (O-130)."""

from __future__ import annotations

from fw_actors.rules.findings import Level, Section, count, ok, problem, report, warning

ODD = warning("w", "look")
BROKEN = problem("p", "mend")
SECTION = Section("webhooks", "Webhooks", (ok("fine"), ODD, BROKEN), {"off": False})


def test_findings_report_holds_facts_and_sentences() -> None:
    result = report([SECTION])["sections"]["webhooks"]
    assert (result["off"], result["warnings"], result["problems"]) == (False, ["w"], ["p"])
    assert result["findings"][0] == {"level": "ok", "text": "fine", "todo": ""}


def test_findings_report_is_ok_without_problems() -> None:
    assert report([Section("a", "A", (ODD,))])["ok"] is True
    assert report([Section("a", "A", (ODD,)), SECTION])["ok"] is False
    assert [count([SECTION, SECTION], level) for level in Level] == [2, 2, 2]


def test_reworded_section_has_other_texts_and_remedies_only() -> None:
    """The doctor removes secrets by it (C-85)."""
    section = Section(
        "mail", "Mail", (warning("the password pw", "change pw"), ok("fine")), {"n": 1}
    )
    assert section.reworded(lambda text: text.replace("pw", "***")) == Section(
        "mail", "Mail", (warning("the password ***", "change ***"), ok("fine")), {"n": 1}
    )
