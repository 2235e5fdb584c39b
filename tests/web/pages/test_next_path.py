"""A sign-in leads to a path of this site and nowhere else (H-155)."""

from __future__ import annotations

from urllib.parse import parse_qs, urljoin, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from web.pages.rendering import HOME, local_path, sign_in_path

SITE = "https://site.test/login"


@pytest.mark.parametrize("path", ["/", "/app", "/app/Sales%20Order?status=New&_q=%2F", "/a/b#c"])
def test_local_path_keeps_paths_of_this_site(path: str) -> None:
    assert local_path(path) == path


@pytest.mark.parametrize(
    "text",
    [
        None, "", "app", "//evil.test", "/\\evil.test", "\\\\evil.test", "https://evil.test/",
        "javascript:alert(1)", "/\t/evil.test", "/a\n/b", "/ä", " /app", "/a b", "/x\\y",
        "user@evil.test", "/" + "a" * 2048,
    ],
)  # fmt: skip
def test_local_path_replaces_other_texts_by_the_desk(text: str | None) -> None:
    assert local_path(text) == HOME


@given(st.text(alphabet="/\\:@.\t\r\n%abc ?#", max_size=12) | st.text(max_size=12))
@example("/%2f/evil.test")
@example("/.//evil.test")
def test_local_path_never_leaves_the_site(text: str) -> None:
    """A browser drops tabs and line breaks, and takes a backslash for a slash."""
    path = local_path(text)
    seen = path.replace("\t", "").replace("\n", "").replace("\r", "").replace("\\", "/")
    assert urlsplit(urljoin(SITE, seen)).netloc == "site.test"
    assert urlsplit(urljoin(SITE, seen)).scheme == "https"


def test_sign_in_path_holds_the_wanted_path() -> None:
    expected = "/app/Sales%20Order?status=New&_page=2"
    path, _, query = sign_in_path(expected).partition("?")
    assert (path, parse_qs(query)) == ("/login", {"next": [expected]})
    assert sign_in_path(HOME) == "/login"
