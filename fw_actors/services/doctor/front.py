"""How the site is reached: its public URL, its cookie, and whose word counts for an address."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from fw_actors.config import Config, Deployment
from fw_actors.rules.findings import Finding, Section, ok, problem, warning

HTTPS: Final = "https://"


def judge_front(config: Config) -> Section:
    """Judge what people and proxies meet; pure. Source: spec, Site policy; interface §1, §8."""
    findings = (
        *_public_url(config.deployment),
        _cookie(config.auth.secure_cookie, config.deployment.public_url),
        *_proxy(config.deployment),
    )
    facts = {
        "publicUrl": config.deployment.public_url,
        "bind": f"{config.deployment.bind_host}:{config.deployment.bind_port}",
        "mode": config.deployment.mode,
    }
    return Section("web", "Web", findings, facts)


def is_local(host: str | None) -> bool:
    """Say whether a host is written as this machine's own."""
    if host == "localhost":
        return True
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return False


def _public_url(deployment: Deployment) -> Iterator[Finding]:
    url = deployment.public_url
    if url is None:
        yield warning(
            "FW_PUBLIC_URL is not set: links in mails begin with the address that is bound to",
            "Set FW_PUBLIC_URL to what people type, such as https://fw.example.org.",
        )
    elif not url.startswith(HTTPS) and not is_local(urlsplit(url).hostname):
        yield warning(
            f"people reach the site at {url}: passwords and cookies travel in clear text",
            "Put a TLS proxy in front of it and begin the site's URL with https.",
        )
    else:
        yield ok(f"links begin with {url}")


def _cookie(secure: bool | None, url: str | None) -> Finding:
    https = url is not None and url.startswith(HTTPS)
    if secure is True and url is not None and not https:
        return problem(
            "auth.secureCookie is true and the site is not https: no browser sends the cookie "
            "back, so nobody stays signed in",
            "Set auth.secureCookie to null, or serve the site over https.",
        )
    if secure is False and https:
        return warning(
            "auth.secureCookie is false and the site is https: the cookie may travel in clear text",
            "Set auth.secureCookie to null.",
        )
    if secure is None and not https:
        return ok("the cookie is Secure when its request came over TLS")
    return ok("the cookie is not Secure" if secure is False else "the cookie is Secure")


def _proxy(deployment: Deployment) -> Iterator[Finding]:
    trust = deployment.trust_proxy
    networks = ", ".join(map(str, trust.networks))
    open_to_all = not is_local(deployment.bind_host)
    if trust.every_peer and open_to_all:
        yield warning(
            f"FW_TRUST_PROXY is on and {deployment.bind_host} is open to others: whoever connects "
            "directly may claim any address in X-Forwarded-For",
            "Name the proxy's network instead, such as FW_TRUST_PROXY=10.0.0.0/8, or bind to "
            "127.0.0.1.",
        )
    elif trust.every_peer:
        yield ok("a client's address is the right-most entry of X-Forwarded-For, from any peer")
    elif any(network.prefixlen == 0 for network in trust.networks):
        yield warning(
            f"FW_TRUST_PROXY trusts the whole internet ({networks})",
            "Name the proxy's own network.",
        )
    elif networks:
        yield ok(
            f"a peer in {networks} is believed: a client's address is the first entry of "
            "X-Forwarded-For, from the right, that is in none of them"
        )
    elif (deployment.public_url or "").startswith(HTTPS):
        yield warning(
            "the site is https, so a proxy stands before it, and FW_TRUST_PROXY is off: all "
            "clients count as one address, and 50 wrong passwords lock everybody out",
            "Set FW_TRUST_PROXY to the proxy's network, or to on when it is the only one that "
            "reaches the service.",
        )
    else:
        yield ok("X-Forwarded-For is ignored: a client's address is the peer's")
