"""Pages out of templates: what each has in common, refusals as pages, and ways to other pages."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from fw_actors.errors import AuthenticationError, FwError, NotFoundError, PermissionDeniedError
from web.cookies import clear_cookie
from web.envelope import Answer, refusal
from web.exchange import Exchange
from web.headers import CSRF_HEADER
from web.pages.assets import Assets
from web.pages.next_path import sign_in_path
from web.settings import Settings

HTML_KIND: Final = "text/html"
HTML: Final = f"{HTML_KIND}; charset=utf-8"
SEE_OTHER: Final = 303
TITLES: Final = (
    (NotFoundError, "Not found"),
    (PermissionDeniedError, "Not allowed"),
)


class Rendering:
    """Makes answers of templates; one for all pages of a site."""

    def __init__(self, settings: Settings, assets: Assets) -> None:
        self._environment = Environment(
            loader=PackageLoader("web.pages"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals |= {
            "site": settings.name,
            "assets": assets.folder,
            "csrf_header": CSRF_HEADER,
        }

    def page(self, template: str, /, status: int = 200, **context: Any) -> Answer:
        """Return a page; `context` are the template's variables."""
        text = self._environment.get_template(template).render(context)
        return Answer(text.encode(), status, HTML)

    def refuse(self, exchange: Exchange, error: FwError) -> Answer:
        """Return a refusal as a page, to whom takes one; others get the envelope (interface §1).

        A browser that is not signed in is led to the sign-in page, and so is one that brings two
        cookies `sid`: nobody can tell which of them is the session's.
        """
        if isinstance(error, AuthenticationError) and exchange.request.method in ("GET", "HEAD"):
            return self._to_sign_in(exchange)
        if HTML_KIND not in exchange.request.headers.get("Accept", "").lower():
            return refusal(error)
        if exchange.clears_cookies and exchange.request.method in ("GET", "HEAD"):
            return self._to_sign_in(exchange)
        title = next((t for kind, t in TITLES if isinstance(error, kind)), "That did not work")
        answer = self.page(
            "refused.html",
            error.status,
            title=title,
            message=error.message,
            request_id=exchange.request_id,
            signed_in=exchange.caller is not None,
        )
        return Answer(answer.body, answer.status, HTML, tuple(error.headers.items()))

    def _to_sign_in(self, exchange: Exchange) -> Answer:
        """A `sid` that is nobody's any more is taken away, so that it is not asked for again."""
        request = exchange.request
        query = request.query_string.decode("latin-1")
        answer = redirect(sign_in_path(quote(request.path) + (f"?{query}" if query else "")))
        if exchange.sid is None:
            return answer
        cookie = ("Set-Cookie", clear_cookie(secure=exchange.cookie_is_secure))
        return Answer(b"", answer.status, HTML, (*answer.headers, cookie))


def redirect(location: str) -> Answer:
    """Lead to another page of the site; `location` is a local path, percent-encoded."""
    return Answer(b"", SEE_OTHER, HTML, (("Location", location),))
