"""What a message may keep: pitfalls, Logs; interface §3 "Error Log"."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.rules.scrubbing import scrub

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
    ("division by zero", "division by zero"),
    ("There is no Customer key account.", "There is no Customer key account."),
    ("a monkey: eats", "a monkey: eats"),
    ("/srv/site/apps/shop.py, line 12", "/srv/site/apps/shop.py, line 12"),
    (
        "/srv/lib/python3.11/site-packages/trio/_core/_traps.py",
        "/srv/lib/python3.11/site-packages/trio/_core/_traps.py",
    ),
]


@pytest.mark.parametrize(("text", "kept"), ROWS)
def test_what_looks_like_a_secret_goes_and_the_rest_stays(text: str, kept: str) -> None:
    assert scrub(text) == kept


def test_known_secrets_go_whatever_they_look_like() -> None:
    secrets = ("tea", "tea time", "", "lemon")
    assert scrub("no tea time without lemon, or tea", secrets) == (
        "no [scrubbed] without [scrubbed], or tea"
    )


@given(st.text(max_size=200), st.text(min_size=4, max_size=20))
def test_a_known_secret_is_in_no_scrubbed_text(text: str, secret: str) -> None:
    kept = scrub(f"{text}{secret}{text}", [secret])
    assert not [part for part in kept.split("[scrubbed]") if secret in part]
