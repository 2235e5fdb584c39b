"""What deploy/nginx.conf promises to browsers: TLS of today, and nothing in clear text."""

from __future__ import annotations

import re
from pathlib import Path

CONF = Path(__file__).parents[2] / "deploy" / "nginx.conf"
SERVER = re.compile(r"^server \{\n(.*?)^\}", re.DOTALL | re.MULTILINE)


def servers() -> list[str]:
    """The server blocks, without their comments."""
    return SERVER.findall(re.sub(r"#.*", "", CONF.read_text()))


def test_the_proxy_speaks_tls_1_2_and_1_3_alone() -> None:
    (secured,) = [block for block in servers() if "listen 443 ssl" in block]
    assert re.findall(r"ssl_protocols ([^;]+);", secured) == ["TLSv1.2 TLSv1.3"]


def test_the_proxy_serves_nothing_in_clear_text() -> None:
    plain = [block for block in servers() if " ssl" not in block]
    assert len(plain) == 1
    assert "return 301 https://$host$request_uri;" in plain[0]
    assert "proxy_pass" not in plain[0]


def test_the_proxy_keeps_the_numbers_to_the_machine() -> None:
    (secured,) = [block for block in servers() if "listen 443 ssl" in block]
    assert re.search(r"location = /metrics \{\s*return 404;\s*\}", secured)
