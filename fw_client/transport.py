"""The settings of a client, and the conversion between its requests and those of httpx."""

from __future__ import annotations

import ipaddress
import math
import re
import ssl
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from fw_client.retries import DEFAULT_RETRIES, RetryPolicy
from fw_client.wire import Call, HttpAnswer, NoAnswer

CONNECT_SECONDS: Final = 5.0
DEFAULT_SECONDS: Final = 30.0
_KEY: Final = re.compile(r"[!-~]+")
_UNSENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The service, the caller, timeouts and retries; see the arguments of FwClient.

    Raises: ValueError for a URL or a combination that cannot work.
    """

    url: str
    key: str | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    timeout: float = DEFAULT_SECONDS
    retries: RetryPolicy = DEFAULT_RETRIES
    allow_http: bool = False

    def __post_init__(self) -> None:
        _check_url(self.url, self.allow_http)
        if (self.user is None) != (self.password is None):
            raise ValueError("Give user and password together.")
        if self.key is not None and self.user is not None:
            raise ValueError("Give an API key, or user and password, not both.")
        if self.key is not None and not _KEY.fullmatch(self.key):
            # httpx would name the key in its error, such as one read from a file with a line end
            raise ValueError("key must be an API key: ASCII characters without white space.")
        timeout: object = self.timeout
        if not (isinstance(timeout, int | float) and 0 < timeout < math.inf):
            raise ValueError("timeout must be a finite number of seconds, more than 0.")

    @property
    def trust_env(self) -> bool:
        """Whether the proxies and certificates of the environment may be used.

        Over http to this machine they may not: a proxy on another machine could read the key.
        """
        parts = urlsplit(self.url)
        return parts.scheme == "https" or not _is_loopback(parts.hostname or "")


def _check_url(url: str, allow_http: bool) -> None:
    parts = urlsplit(url)
    try:
        httpx.URL(url)
        usable = parts.port != 0
    except (httpx.InvalidURL, ValueError):  # ValueError: a port above 65535
        usable = False
    if not usable or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("url must be the URL of the service, such as https://fw.example.org.")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("url must not contain a user, a password, a query or a fragment.")
    if parts.scheme == "http" and not allow_http and not _is_loopback(parts.hostname):
        raise ValueError(
            "Over http the network can read the key: use https, or allow_http=True in a network "
            "that you trust."
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@cache
def _agent() -> str:
    try:
        return f"fw-client/{version('fw-actors')}"
    except PackageNotFoundError:  # a checkout that is not installed
        return "fw-client"


def http_request(
    settings: ClientSettings, call: Call[Any], session: str | None, request_id: str
) -> httpx.Request:
    """Return the request of a call, with the caller's key, or the session's cookie.

    It is built without the httpx client's state, so that none of its cookies are sent.

    Raises: ValueError for a URL that is too long.
    """
    headers = {"user-agent": _agent(), "accept": "application/json", "x-request-id": request_id}
    if settings.key is not None:
        headers["authorization"] = f"Bearer {settings.key}"
    elif call.method != "GET":
        headers["x-fw-csrf"] = "1"
    if session is not None:
        headers["cookie"] = f"sid={session}"
    if call.body is not None:
        headers["content-type"] = "application/json"
    connect = min(CONNECT_SECONDS, settings.timeout)
    timeout = httpx.Timeout(settings.timeout, connect=connect)
    try:
        return httpx.Request(
            call.method,
            settings.url.rstrip("/") + call.target,
            headers=headers,
            content=call.body,
            extensions={"timeout": timeout.as_dict()},
        )
    except httpx.InvalidURL as error:
        raise ValueError(
            f"{call.method} {call.path[:200]} cannot be sent: {error}. Give fewer or shorter "
            "filters."
        ) from None


def http_answer(response: httpx.Response) -> HttpAnswer:
    """Return a completely read response."""
    return HttpAnswer(response.status_code, dict(response.headers), response.content)


def no_answer(error: httpx.RequestError, host: str) -> NoAnswer:
    """Return the error for a request without a response of `host`."""
    refused = _refused_certificate(error)
    if refused is not None:
        problem = f"{host}: the certificate is not trusted: {refused.verify_message}"
        return NoAnswer(problem, sent=False, final=True)
    problem = f"{host}: {type(error).__name__}"
    if str(error):
        problem += f": {error}"
    return NoAnswer(problem, sent=not isinstance(error, _UNSENT))


def _refused_certificate(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """Return the refusal of a certificate that has caused the error: httpx reports every failed
    connection alike, and under trio without the reason."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error
