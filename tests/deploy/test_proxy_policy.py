"""The promises of deploy/nginx.conf to browsers: current TLS, and nothing in clear text."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

from web.connections import REQUEST_SECONDS
from web.request import MIB
from web.routes.webhooks import MAX_BATCH_BYTES

CONF = Path(__file__).parents[2] / "deploy" / "nginx.conf"
SERVER = re.compile(r"^server \{\n(.*?)^\}", re.DOTALL | re.MULTILINE)


def servers() -> list[str]:
    """The server blocks, without their comments."""
    return SERVER.findall(re.sub(r"#.*", "", CONF.read_text()))


def test_proxy_allows_only_tls_1_2_and_1_3() -> None:
    (secured,) = [block for block in servers() if "listen 443 ssl" in block]
    assert re.findall(r"ssl_protocols ([^;]+);", secured) == ["TLSv1.2 TLSv1.3"]


def test_proxy_offers_only_forward_secret_authenticated_suites() -> None:
    (secured,) = [block for block in servers() if "listen 443 ssl" in block]
    (ciphers,) = re.findall(r"ssl_ciphers ([^;]+);", secured)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(ciphers)
    suites = [each["name"] for each in context.get_ciphers() if each["protocol"] == "TLSv1.2"]
    assert len(suites) >= 4
    for suite in suites:
        assert re.fullmatch(r"ECDHE-(ECDSA|RSA)-(AES\d+-GCM-SHA\d+|CHACHA20-POLY1305)", suite)


def test_proxy_serves_nothing_in_clear_text() -> None:
    plain = [block for block in servers() if " ssl" not in block]
    assert len(plain) == 1
    assert "return 301 https://$server_name$request_uri;" in plain[0]
    assert "proxy_pass" not in plain[0]


def test_proxy_refuses_plain_http_to_api() -> None:
    (plain,) = [block for block in servers() if " ssl" not in block]
    assert re.search(r"location /api/ \{\s*return 403;\s*\}", plain)


def test_proxy_hides_metrics() -> None:
    (secured,) = [block for block in servers() if "listen 443 ssl" in block]
    assert re.search(r"location = /metrics \{\s*return 404;\s*\}", secured)


def test_proxy_passes_largest_body_that_service_accepts() -> None:
    """The pages and the file agree with the limit of a batch of events (B-89)."""
    for page in (CONF, CONF.parents[1] / "docs" / "scaling.md"):
        limits = re.findall(r"client_max_body_size (\d+)m;", page.read_text())
        assert [int(each) * MIB for each in limits] == [MAX_BATCH_BYTES], page.name


def test_proxy_closes_idle_connections_before_service_does() -> None:
    """A POST that is sent on a connection while it is closed is not repeated: 502 (H-124)."""
    for page in (CONF, CONF.parents[1] / "docs" / "scaling.md"):
        found = re.findall(r"^    keepalive_timeout (\d+)s;", page.read_text(), re.MULTILINE)
        assert len(found) == 1, page.name
        assert int(found[0]) <= REQUEST_SECONDS - 5, page.name
