"""The part of the site's configuration that the front end needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from fw_actors.config import ProxyTrustPolicy
from fw_actors.rules.safe_output import Scrubber
from fw_actors.tracing import Tracer


@dataclass(frozen=True)
class Settings:
    """The site's settings for the front end.

    `url`: the public one without a trailing slash, else that of the listening address.
    `login`: the public content of the sign-in screen (A-340).
    `min_password_length`: in runes; pages check it before they send.
    `refuse_common_passwords`: the policy's, shown next to the field.
    `self_service_api_keys`, `api_key_days`: the policy's, for the account page.
    `scrubber`: removes the site's secrets from error messages.
    `hsts_include_sub_domains`: whether HSTS covers all subdomains.
    `secure_cookie`: `auth.secureCookie`; None decides per request.
    `tracer`: continues traces of requests; None if `ops.traceContext` is off.
    `other_nodes_wait`: other nodes, if there are any, use a saved Webhook only after a restart
        (B-42).
    """

    name: str
    url: str
    login: dict[str, str] = field(default_factory=dict)
    min_password_length: int = 8
    refuse_common_passwords: bool = False
    self_service_api_keys: bool = True
    api_key_days: int = 0
    secure_cookie: bool | None = None
    max_requests: int = 1000
    hsts_include_sub_domains: bool = False
    trust: ProxyTrustPolicy = field(default_factory=ProxyTrustPolicy)
    scrubber: Scrubber = field(default_factory=Scrubber)
    tracer: Tracer | None = None
    other_nodes_wait: bool = False

    @cached_property
    def is_https(self) -> bool:
        """Return whether the site is served over TLS."""
        return self.url.startswith("https://")


def login_screen(
    notice: str | None, demo_user: str | None, demo_password: str | None
) -> dict[str, str]:
    """Return the public content of the sign-in screen; a demo account needs name and password."""
    content = {"notice": notice} if notice else {}
    if demo_user and demo_password:
        content |= {"demoUser": demo_user, "demoPassword": demo_password}
    return content
