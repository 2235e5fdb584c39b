"""The parts of a message that scrubbing keeps (O-101, D-226)."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.rules.safe_output import MAX_SEARCHED_CHARACTERS, Scrubber

QUOTED = (("", ""), ("'", "'"), ('"', '"'), ("b'", "'"))

ROWS = [  # a text, what is kept of it
    ("password=hunter2 was wrong", "password=[scrubbed] was wrong"),
    ("{'new_password': 'two words', 'a': 1}", "{'new_password': [scrubbed], 'a': 1}"),
    ('{"api_secret": "x", "b": 2}', '{"api_secret": [scrubbed], "b": 2}'),
    ("pwd: x; token=y, sid=z", "pwd: [scrubbed]; token=[scrubbed], sid=[scrubbed]"),
    ("Authorization: Bearer abc.def", "Authorization: Bearer [scrubbed]"),
    ("sent Bearer abc.def to them", "sent Bearer [scrubbed] to them"),
    ("FW_SECRET_KEY=abc", "FW_SECRET_KEY=[scrubbed]"),
    ("the key fwk_abcdefghijkl_0123 of ada", "the key fwk_[scrubbed] of ada"),
    ("secret whsec_MfKQ+/a= is odd", "secret whsec_[scrubbed] is odd"),
    ("at https://ada:pw@x.test/a?b=c#d now", "at https://[scrubbed]@x.test/a?[scrubbed] now"),
    ("token 7WdAub10JdywPeBL8KTyHgrcPr72gitV!", "token [scrubbed]!"),
    ("sent 12345678901234567890123456789012 now", "sent 12345678901234567890123456789012 now"),
    ("division by zero", "division by zero"),
    ("There is no Customer key account.", "There is no Customer key account."),
    ("a monkey: eats", "a monkey: eats"),
    ("/srv/site/apps/shop.py, line 12", "/srv/site/apps/shop.py, line 12"),
    (
        "/srv/lib/python3.11/site-packages/trio/_core/_traps.py",
        "/srv/lib/python3.11/site-packages/trio/_core/_traps.py",
    ),
]


LONG = 200_000  # characters: some 50 ms if the time is linear, hours if it is quadratic
SECRET = "sk_live/51+Habcd"


@pytest.mark.parametrize(("text", "kept"), ROWS)
def test_scrub_removes_only_apparent_secrets(text: str, kept: str) -> None:
    assert Scrubber().scrub(text) == kept


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["a-", "1a-", "a.", "://a", "a://", "password", "token-", "sid "])
def test_scrub_takes_linear_time(piece: str) -> None:
    """The text of an error may come from a client; minutes of scrubbing would stop the service."""
    Scrubber((SECRET,)).scrub(piece * (LONG // len(piece)))


def test_scrub_searches_a_bounded_part_of_a_text() -> None:
    """A defect may have the text of a request of 4 MiB, and all others wait meanwhile (H-141)."""
    scrubbed = Scrubber().scrub("word " * 200_000 + "password=hunter2222")
    assert scrubbed.startswith("word word ")
    assert scrubbed.endswith(" more characters)")
    assert len(scrubbed) < 33_000


@pytest.mark.parametrize("shown", range(0, 80, 8))
def test_scrub_leaves_no_part_of_a_secret_at_the_cut(shown: int) -> None:
    """Half of a token or of a URL's password does not look like one (O-101)."""
    secrets = ("Zq7" * 25, "https://Zq7:Zq7Zq7Zq7@example.test/")
    for secret in secrets:
        text = "a" * (MAX_SEARCHED_CHARACTERS - shown - 1) + " " + secret + " end" * 1000
        assert "Zq7" not in Scrubber().scrub(text)


def test_scrub_known_removes_secrets_of_any_form() -> None:
    scrubber = Scrubber(("teatea", "teatea time", "", "lemons"))
    assert scrubber.scrub_known("no teatea time without lemons, or teatea, or password=x") == (
        "no [scrubbed] without [scrubbed], or [scrubbed], or password=x"
    )


def test_scrub_unless_given_keeps_only_secrets_that_were_given() -> None:
    scrubber = Scrubber(("teatea", "lemons"))
    text = "teatea without lemons"
    assert scrubber.scrub_unless_sent(text, lambda: "") == "[scrubbed] without [scrubbed]"
    assert scrubber.scrub_unless_sent(text, lambda: "TeaTea") == "teatea without [scrubbed]"
    assert scrubber.scrub_unless_sent(text, lambda: "teatea, lemons") == text


def test_scrub_unless_given_recognises_a_secret_in_another_form() -> None:
    scrubber = Scrubber(("tea'tea\n",))
    shown = f"unknown key {'tea' + chr(39) + 'tea' + chr(10)!r}"
    assert scrubber.scrub_unless_sent("it is tea%27tea", lambda: "tea'tea") == "it is tea%27tea"
    assert scrubber.scrub_unless_sent(shown, lambda: "teatea") == 'unknown key "[scrubbed]\\n"'


def test_scrub_unless_given_asks_only_if_the_text_has_a_secret() -> None:
    def given() -> str:
        raise AssertionError

    assert Scrubber(("teatea",)).scrub_unless_sent("milk", given) == "milk"


def test_scrub_known_keeps_short_secrets() -> None:
    """Removing short secrets would garble the log: every timestamp contains `1`."""
    scrubber = Scrubber(("1", "admin", "      1      "))
    assert scrubber.scrub_known("admin signed in at 11:10") == "admin signed in at 11:10"
    assert Scrubber(("secret",)).scrub_known("a secret!") == "a [scrubbed]!"


@pytest.mark.parametrize(
    "shown",
    [
        SECRET,
        json.dumps({"key": SECRET}),
        repr(SECRET),
        repr(SECRET.encode()),
        quote(SECRET),
        quote(SECRET, safe=""),
        urlencode({"key": SECRET}),
        b64encode(SECRET.encode()).decode(),
        urlsafe_b64encode(SECRET.encode()).decode(),
        b64encode(f"u:{SECRET}".encode()).decode(),
        b64encode(f"us:{SECRET}:x".encode()).decode(),
        b64encode(f"use:{SECRET}".encode()).decode(),
    ],
)
def test_scrub_known_finds_usual_encodings(shown: str) -> None:
    kept = Scrubber([SECRET]).scrub_known(f"upstream said {shown}.")
    assert "[scrubbed]" in kept
    assert shown not in kept


@pytest.mark.parametrize(
    "secret",
    ['two "quotes"', "back\\slash", "über-geheim", "tab\there", "line\nbreak", "\u202ebidi!"],
)
@pytest.mark.parametrize("show", [str, repr, ascii, json.dumps, lambda s: repr(s.encode())])
def test_scrub_known_finds_python_representations(secret: str, show: Callable[[str], str]) -> None:
    kept = Scrubber([secret]).scrub_known(f"<{show(secret)}>")
    assert kept in {f"<{before}[scrubbed]{after}>" for before, after in QUOTED}


def test_scrub_known_finds_single_lines_of_secret() -> None:
    """A traceback is logged line by line, an actor's failure with its white space folded."""
    lines = ["-----BEGIN KEY-----", "MIIEvQIBADANBgkq", "hkiG9w0BAQEFAASC", "-----END KEY-----"]
    scrubber = Scrubber(["\n".join(lines) + "\n"])
    assert scrubber.scrub_known("\n  | ".join(lines)) == "\n  | ".join(["[scrubbed]"] * 4)
    assert scrubber.scrub_known(" ".join(lines)) == "[scrubbed]"


def test_scrub_known_ignores_final_line_end_of_secret() -> None:
    assert Scrubber(["a secret\n"]).scrub_known("<a secret>") == "<[scrubbed]>"


def test_scrubber_repr_hides_its_secrets() -> None:
    assert SECRET not in repr(Scrubber([SECRET]))


@given(st.text(max_size=200), st.text(min_size=6, max_size=20).filter(lambda s: len(s.strip()) > 5))
def test_scrub_leaves_no_known_secret(text: str, secret: str) -> None:
    kept = Scrubber([secret]).scrub(f"{text}{secret}{text}")
    assert not [part for part in kept.split("[scrubbed]") if secret in part]
