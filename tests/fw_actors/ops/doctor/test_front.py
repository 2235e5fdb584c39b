"""Public URL, cookie and proxy: a missing public URL is warned of (O-135, O-137)."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from fw_actors.config import ProxyTrustPolicy
from fw_actors.ops.doctor import evaluate_front
from fw_actors.rules.findings import Level
from tests.site_kit import make_config

HTTPS = {"public_url": "https://fw.example"}
ON = {"trust_proxy": ProxyTrustPolicy(True, ())}
NETWORK = {"trust_proxy": ProxyTrustPolicy(False, (ip_network("10.0.0.0/8"),))}
EVERYBODY = {"trust_proxy": ProxyTrustPolicy(False, (ip_network("0.0.0.0/0"),))}
OPEN = {"bind_host": "0.0.0.0"}


def texts(level: Level, **changes: Any) -> list[str]:
    return evaluate_front(make_config(Path("/srv/site"), **changes)).texts(level)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, "FW_PUBLIC_URL is not set"),
        ({"public_url": "http://fw.example"}, "clear text"),
        ({**HTTPS, **ON, "secure_cookie": False}, "secureCookie is false"),
        ({**HTTPS}, "all clients count as one address"),
        ({**HTTPS, **ON, **OPEN}, "can claim any address"),
        ({**HTTPS, **EVERYBODY}, "the entire internet"),
    ],
)
def test_doctor_warns_once_of_a_doubtful_front(changes: dict[str, Any], word: str) -> None:
    (only,) = texts(Level.WARNING, **changes)
    assert word in only


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({**HTTPS, **ON}, "right-most entry of X-Forwarded-For, from any peer"),
        ({**HTTPS, **NETWORK, **OPEN}, "10.0.0.0/8 are trusted"),
        ({"public_url": "http://localhost:8000"}, "X-Forwarded-For is ignored"),
        ({"public_url": "http://127.0.0.1"}, "Secure if the request arrived over TLS"),
        ({**HTTPS, **ON, "secure_cookie": True}, "the cookie is Secure"),
    ],
)
def test_doctor_describes_a_good_front(changes: dict[str, Any], word: str) -> None:
    assert texts(Level.WARNING, **changes) == texts(Level.PROBLEM, **changes) == []
    assert any(word in text for text in texts(Level.OK, **changes))


def test_doctor_reports_a_secure_cookie_on_plain_http() -> None:
    (only,) = texts(Level.PROBLEM, public_url="http://localhost", secure_cookie=True)
    assert "no session stays valid" in only
