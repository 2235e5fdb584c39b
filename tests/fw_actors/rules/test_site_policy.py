"""The table of fw.json and its validation (C-16 to C-42)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.config.policy import ParsedPolicy, parse_policy

# section, key, default, lowest, highest: the table of section `auth` and others, written out again
WHOLE_NUMBERS = [
    ("auth", "sessionDays", 30, 1, 3650),
    ("auth", "sessionIdleDays", 0, 0, 3650),
    ("auth", "apiKeyDays", 0, 0, 3650),
    ("auth", "minPasswordLength", 8, 1, 256),
    ("auth", "maxLoginAttempts", 5, 1, 1000),
    ("auth", "lockoutMinutes", 15, 1, 10080),
    ("auth", "resetMinutes", 60, 1, 10080),
    ("auth", "inviteHours", 72, 1, 8760),
    ("auth", "addressAttempts", 50, 1, 1000000),
    ("auth", "recoveryAttempts", 20, 1, 1000000),
    ("web", "maxRequests", 1000, 1, 100000),
    ("ops", "webhookRetentionDays", 30, 0, 36500),
    ("ops", "auditRetentionDays", 365, 0, 36500),
    ("ops", "deliveryConcurrency", 512, 1, 4096),
    ("ops", "perReceiverConcurrency", 16, 1, 1024),
    ("ops", "receiverNotice", 24, 0, 8760),
    ("ops", "disableAfterDays", 0, 0, 365),
    ("ops", "payloadDays", 0, 0, 36500),
]
FRACTIONS = [
    ("ops", "backoffSeconds", 30, 0.1, 86400),
    ("ops", "queryTimeoutSeconds", 5.0, 0.1, 300),
    ("ops", "backoffCapSeconds", 3600, 0.1, 86400),
]
FLAGS = [
    ("auth", "refuseCommonPasswords", False),
    ("auth", "newDeviceMail", False),
    ("auth", "selfServiceApiKeys", True),
    ("ops", "scheduler", True),
    ("ops", "honourRetryAfter", False),
    ("ops", "subscriptionRefresh", False),
    ("ops", "traceContext", False),
    ("web", "hstsIncludeSubDomains", False),
]
TEXTS = [
    ("site", "name"),
    ("auth", "breachedPasswords"),
    ("login", "notice"),
    ("login", "demoUser"),
    ("login", "demoPassword"),
]
NO_NUMBERS: list[object] = [True, False, None, "30", "", [], {}, [3]]


def policy_of(document: object) -> ParsedPolicy:
    return parse_policy(json.dumps(document))


def only_problem(document: object) -> str:
    problems = policy_of(document).problems
    assert len(problems) == 1, problems
    return problems[0]


@pytest.mark.parametrize(
    ("section", "key", "default"),
    [
        *[(section, key, default) for section, key, default, _, _ in WHOLE_NUMBERS + FRACTIONS],
        *FLAGS,
        ("auth", "secureCookie", None),
        ("login", "notice", None),
        ("login", "demoUser", None),
        ("login", "demoPassword", None),
        ("site", "name", "fw"),
    ],
)
def test_policy_gives_documented_default_for_absent_key(
    section: str, key: str, default: object
) -> None:
    policy = policy_of({})
    assert not policy.problems
    assert policy.sections[section][key] == default


def test_policy_has_exactly_documented_keys() -> None:
    expected = {
        *((section, key) for section, key, *_ in WHOLE_NUMBERS + FRACTIONS + FLAGS),
        *TEXTS,
        ("auth", "secureCookie"),
        ("ops", "outgoing"),
        ("ops", "processes"),
    }
    assert {(s, key) for s, keys in policy_of({}).sections.items() for key in keys} == expected


@pytest.mark.parametrize(("section", "key", "_default", "low", "high"), WHOLE_NUMBERS)
def test_policy_limits_whole_numbers_to_their_range(
    section: str, key: str, _default: int, low: int, high: int
) -> None:
    """Zero session days and zero login attempts are invalid (A-11); the ranges of the table (C-17,
    C-19, C-20, C-21, C-22, C-23,
    C-24, C-18, C-27, C-28, C-31, C-33,
    C-34, C-36, C-37, C-38, C-39, C-41)."""
    for value in (low, high):
        policy = policy_of({section: {key: value}})
        assert (policy.problems, policy.sections[section][key]) == ((), value)
    refused: list[object] = [low - 1, high + 1, -(10**30), 10**30, low + 0.5, float(high)]
    for other in refused:
        problem = only_problem({section: {key: other}})
        assert f"{section}.{key} must be a whole number from {low} to {high}" in problem


@pytest.mark.parametrize(("section", "key", "_default", "low", "high"), FRACTIONS)
def test_policy_limits_fractions_to_their_range(
    section: str, key: str, _default: float, low: float, high: float
) -> None:
    for value in (low, high, 0.5, 7):
        assert not policy_of({section: {key: value}}).problems
    for value in (0, 0.09, 86400.1, -1):
        assert f"{section}.{key}" in only_problem({section: {key: value}})
    assert f"{section}.{key}" in "".join(
        parse_policy(f'{{"{section}": {{"{key}": 1e999}}}}').problems
    )


@pytest.mark.parametrize("value", NO_NUMBERS, ids=json.dumps)
@pytest.mark.parametrize(
    ("section", "key"), [(section, key) for section, key, *_ in WHOLE_NUMBERS + FRACTIONS]
)
def test_policy_refuses_other_types_as_numbers(section: str, key: str, value: object) -> None:
    """True and false are no numbers (C-15)."""
    assert f"{section}.{key}" in only_problem({section: {key: value}})


@pytest.mark.parametrize(("section", "key", "_default"), FLAGS)
def test_policy_flag_accepts_only_booleans(section: str, key: str, _default: bool) -> None:
    for value in (True, False):
        assert policy_of({section: {key: value}}).sections[section][key] is value
    others: list[object] = [0, 1, "true", "yes", None, []]
    for other in others:
        assert f"{section}.{key}" in only_problem({section: {key: other}})


def test_policy_secure_cookie_accepts_null() -> None:
    """null means that `Secure` is decided per request (A-171, C-25)."""
    for value in (True, False, None):
        policy = policy_of({"auth": {"secureCookie": value}})
        assert (policy.problems, policy.sections["auth"]["secureCookie"]) == ((), value)
    others: list[object] = [1, 0, "maybe", {}]
    for other in others:
        assert "auth.secureCookie" in only_problem({"auth": {"secureCookie": other}})


@pytest.mark.parametrize(("section", "key"), TEXTS)
def test_policy_text_refuses_control_characters(section: str, key: str) -> None:
    for value in ("plain", "Größe 日本"):
        assert policy_of({section: {key: value}}).sections[section][key] == value
    others: list[object] = [5, None, True, [], {}, "a\x00b", "a\x1bb", "\ud800", "x" * 5000]
    for other in others:
        assert f"{section}.{key}" in only_problem({section: {key: other}})


def test_policy_site_name_has_1_to_140_characters() -> None:
    assert policy_of({"site": {"name": "x" * 140}}).problems == ()
    assert "at most 140 characters" in only_problem({"site": {"name": "x" * 141}})
    assert "site.name must not be blank" in only_problem({"site": {"name": " \u3000\u200b"}})


@pytest.mark.parametrize(
    ("value", "shown"),
    [(-1, "-1"), (1.5, "1.5"), (None, "null"), (True, "true"), ("9", "text"), ([9], "a list")],
)
def test_policy_shows_a_wrong_number_but_no_other_value(value: object, shown: str) -> None:
    assert only_problem({"auth": {"sessionDays": value}}).endswith(f", not {shown}")


def test_policy_shows_a_long_number_cut() -> None:
    problem = only_problem({"auth": {"sessionDays": 10**300}})
    assert problem.endswith("0000…")
    assert len(problem) < 120


def test_policy_allows_line_breaks_only_in_notice() -> None:
    assert not policy_of({"login": {"notice": "one\n\ttwo\r\n"}}).problems
    assert "login.demoUser" in only_problem({"login": {"demoUser": "one\ntwo"}})


def test_policy_never_shows_possible_password() -> None:
    for value in ("hidden\x00hidden", "hidden" * 100, ["hidden"]):
        assert "hidden" not in only_problem({"login": {"demoPassword": value}})


@pytest.mark.parametrize(
    ("document", "wrong", "near"),
    [
        ({"auth": {"sesionDays": 3}}, "auth.sesionDays", "auth.sessionDays"),
        ({"auth": {"lockoutMinute": 3}}, "auth.lockoutMinute", "auth.lockoutMinutes"),
        ({"auth": {"SESSIONDAYS": 3}}, "auth.SESSIONDAYS", "auth.sessionDays"),
        ({"auht": {}}, "auht", "auth"),
        ({"app": []}, "app", "apps"),
        ({"login": {"demouser": "x"}}, "login.demouser", "login.demoUser"),
        ({"ops": {"sheduler": True}}, "ops.sheduler", "ops.scheduler"),
        ({"auth": {"scheduler": True}}, "auth.scheduler", "ops.scheduler"),
        ({"sessionDays": 3}, "sessionDays", "auth.sessionDays"),
        ({"auth": {"quxxYzz": True}}, "auth.quxxYzz", "sessionDays, apiKeyDays"),
        ({"mail": {}}, "mail", "site, auth, login, web, ops, apps"),
    ],
)
def test_policy_refuses_unknown_key_with_nearest(document: object, wrong: str, near: str) -> None:
    """Unknown keys are refused with the nearest known one (C-13)."""
    subject, _, offer = only_problem(document).partition(" is unknown; ")
    assert subject.strip('"') == wrong
    assert near in offer


def test_policy_shows_names_cut_and_escaped() -> None:
    problem = only_problem({"\x1b[31m" + "x" * 500: 1})
    assert problem.isascii()
    assert problem.isprintable()
    assert len(problem) < 200


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("{} {}", "not JSON"),
        ("[]", "must contain an object, not a list"),
        ("null", "must contain an object, not null"),
        ("3", "must contain an object, not a number"),
        ('{"auth": []}', "auth must be an object, not a list"),
        ('{"auth": null}', "auth must be an object, not null"),
        ('{"auth": {"sessionDays": NaN}}', "NaN is not a number"),
        ('{"auth": {"sessionDays": -Infinity}}', "-Infinity is not a number"),
        ('{"auth": {"sessionDays": ' + "1" * 5000 + "}}", "too many digits"),
        ("[" * 100_000, "nested too deeply"),
        ('{"auth": {"sessionDays": 3, "sessionDays": 3}}', '"sessionDays" is defined twice'),
        ('{"auth": {}, "auth": {}}', '"auth" is defined twice'),
        ('{"apps": {}}', "apps must be a list of modules, not an object"),
    ],
    ids=lambda text: text[:20],
)
def test_policy_refuses_unreadable_file(text: str, says: str) -> None:
    """Broken JSON, another value than an object, and duplicate keys are refused (C-11, C-13)."""
    problems = parse_policy(text).problems
    assert len(problems) == 1
    assert says in problems[0]


def test_policy_keeps_apps_in_order() -> None:
    policy = policy_of({"apps": ["examples.notes", "shop", "webshop", "fwx"]})
    assert (policy.problems, policy.apps) == ((), ("examples.notes", "shop", "webshop", "fwx"))


@pytest.mark.parametrize(
    "app", ["web", "web.x", "supervisors", "tests", "scripts", "fw_cli", "fw_x"]
)
def test_policy_refuses_reserved_app_names(app: str) -> None:
    """web, supervisors, tests, scripts and fw_* are refused as app names (D-166)."""
    assert "reserved for the framework" in only_problem({"apps": [app]})


@pytest.mark.parametrize(
    "app", ["", "a-b", "a.", ".a", "a..b", "../a", "class", "a b", 3, None, ["a"]]
)
def test_policy_refuses_invalid_app_names(app: object) -> None:
    assert "apps, entry 2" in only_problem({"apps": ["fine", app]})


def test_policy_refuses_repeated_app() -> None:
    assert "twice" in only_problem({"apps": ["shop", "shop"]})


def test_policy_reports_all_problems_together() -> None:
    """All problems are reported at once, with file and key (C-14)."""
    problems = policy_of(
        {
            "auth": {key: -1 for section, key, *_ in WHOLE_NUMBERS if section == "auth"}
            | {"secureCookie": "maybe", "selfServiceApiKeys": 3, "sesionDays": 4},
            "login": {"notice": 5},
            "ops": {"webhookRetentionDays": -1},
            "apps": ["web", 3],
            "extra": {},
        }
    ).problems
    assert len(problems) == 10 + 3 + 1 + 1 + 2 + 1


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
KNOWN_NAMES = st.sampled_from([*policy_of({}).sections, "apps", "name", "sessionDays", "notice"])


@given(st.text() | JSON_VALUES.map(json.dumps))
def test_policy_problems_are_printable_for_any_text(text: str) -> None:
    policy = parse_policy(text)
    assert all(problem.isprintable() for problem in policy.problems)


@given(st.dictionaries(KNOWN_NAMES, JSON_VALUES | st.dictionaries(KNOWN_NAMES, JSON_VALUES)))
def test_policy_values_are_valid_for_any_document(
    document: dict[str, object],
) -> None:
    sections = policy_of(document).sections
    present = {
        section: {key: value for key, value in values.items() if value is not None}
        for section, values in sections.items()
    }
    assert not policy_of(present).problems
