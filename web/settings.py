"""What the front end has to know of the site's configuration."""

from __future__ import annotations

from dataclasses import dataclass, field

from fw_actors.config import ProxyTrustPolicy
from fw_actors.rules.redaction import Scrubber


@dataclass(frozen=True)
class Settings:
    """A site as the front end presents it.

    `url`: the public one, without a slash at its end, or else the one that is listened at.
    `login`: what the sign-in screen may show to anyone (A-340).
    `min_password_length`: counted in runes; pages tell it before they send.
    `refuse_common_passwords`: as the policy has it, told in the same place.
    `self_service_api_keys`, `api_key_days`: as the policy has them, for the page of the account.
    `scrubber`: removes the site's secrets from what a refusal tells.
    `hsts_include_sub_domains`: whether browsers are told to use https for all subdomains as well.
    `secure_cookie`: `auth.secureCookie`; None decides per request.
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

    @property
    def is_https(self) -> bool:
        """Say whether the site is reached over TLS."""
        return self.url.startswith("https://")


def login_screen(
    notice: str | None, demo_user: str | None, demo_password: str | None
) -> dict[str, str]:
    """Return the public `login` part; the demo account only when both halves are set."""
    shown = {"notice": notice} if notice else {}
    if demo_user and demo_password:
        shown |= {"demoUser": demo_user, "demoPassword": demo_password}
    return shown
