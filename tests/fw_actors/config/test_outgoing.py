"""`ops.outgoing`: where deliveries may go, and which way (C-44, C-45, C-46, C-47)."""

from __future__ import annotations

import json
from ipaddress import ip_network
from pathlib import Path

import pytest

from fw_actors.config import load
from fw_actors.errors import ConfigurationError
from fw_actors.rules.outgoing import ALLOW_ALL, EgressProxy, OutgoingPolicy


def write(folder: Path, outgoing: object) -> dict[str, str]:
    (folder / "fw.json").write_text(json.dumps({"ops": {"outgoing": outgoing}}))
    return {"FW_CONFIG": str(folder / "fw.json"), "FW_BIND": "127.0.0.1:8001"}


def test_outgoing_allows_all_by_default(tmp_path: Path) -> None:
    config = load(write(tmp_path, {}), tmp_path)
    assert (config.outgoing.private, config.outgoing.allow) == (ALLOW_ALL.private, ())
    assert config.egress_proxy is None


def test_outgoing_reads_policy_and_proxy(tmp_path: Path) -> None:
    environ = write(
        tmp_path,
        {
            "private": "deny",
            "allow": ["10.1.0.0/16", "fd00::/8"],
            "proxy": "http://proxy.example.org:3128",
            "proxyExcept": [".example.org", "10.0.0.0/8", "::1", "a-host"],
        },
    )
    config = load({**environ, "FW_OUTGOING_PROXY_AUTH": "fw:hidden-word"}, tmp_path)
    networks = (ip_network("10.1.0.0/16"), ip_network("fd00::/8"))
    assert config.outgoing == OutgoingPolicy("deny", networks, own_port=8001)
    assert config.egress_proxy == EgressProxy(
        "proxy.example.org", 3128, "fw:hidden-word", (".example.org", "10.0.0.0/8", "::1", "a-host")
    )
    assert "hidden-word" in config.hidden()
    assert "hidden-word" not in repr(config)


@pytest.mark.parametrize(
    ("outgoing", "problem"),
    [
        (7, "ops.outgoing must be an object, not a number"),
        ({"privat": 1}, "ops.outgoing.privat is unknown; did you mean ops.outgoing.private?"),
        ({"private": "no"}, 'ops.outgoing.private must be "allow" or "deny", not text'),
        ({"private": True}, 'ops.outgoing.private must be "allow" or "deny", not true'),
        ({"allow": "10.0.0.0/8"}, "ops.outgoing.allow must be a list of networks, not text"),
        (
            {"allow": ["10.0.0.0/8", "10.0.0.1/8"]},
            "ops.outgoing.allow must contain networks such as 10.1.0.0/16; entry 2 is not one",
        ),
        ({"allow": [1]}, "ops.outgoing.allow must contain networks such as 10.1.0.0/16; entry 1"),
        ({"allow": ["10.0.0.0/8"] * 101}, "ops.outgoing.allow must have at most 100 networks"),
        ({"proxy": "proxy:3128"}, "ops.outgoing.proxy must be a URL such as"),
        ({"proxy": "https://proxy:3128"}, "ops.outgoing.proxy must be a URL such as"),
        ({"proxy": "http://proxy"}, "ops.outgoing.proxy must be a URL such as"),
        ({"proxy": "http://u:p@proxy:1"}, "ops.outgoing.proxy must be a URL such as"),
        ({"proxy": "http://proxy:99999"}, "ops.outgoing.proxy must be a URL such as"),
        ({"proxy": "http://proxy:1/path"}, "ops.outgoing.proxy must be a URL such as"),
        ({"proxy": "http://proxy:1#part"}, "ops.outgoing.proxy must be a URL such as"),
        ({"proxy": "http://proxy:1?query"}, "ops.outgoing.proxy must be a URL such as"),
        ({"proxy": "http://:1"}, "ops.outgoing.proxy must be a URL such as"),
        ({"proxy": "http://a b:1"}, "ops.outgoing.proxy must be a URL such as"),
        ({"proxy": f"http://{'a' * 64}:1"}, "ops.outgoing.proxy must be a URL such as"),
        ({"proxy": 1}, "ops.outgoing.proxy must be a URL such as"),
        ({"proxyExcept": "localhost"}, "ops.outgoing.proxyExcept must be a list of hosts"),
        (
            {"proxyExcept": ["a-host", 5]},
            "ops.outgoing.proxyExcept must contain hosts, domains such as .example.org or networks "
            "such as 10.0.0.0/8; entry 2 is not one",
        ),
        ({"proxyExcept": ["a b"]}, "ops.outgoing.proxyExcept must contain hosts, domains such as"),
        (
            {"proxyExcept": ["10.1.2.3/8"]},
            "ops.outgoing.proxyExcept must contain hosts, domains such",
        ),
        (
            {"proxyExcept": ["10.0.0.300"]},
            "ops.outgoing.proxyExcept must contain hosts, domains such",
        ),
        ({"proxyExcept": ["a"] * 101}, "ops.outgoing.proxyExcept must have at most 100 hosts"),
    ],
)
def test_outgoing_malformed_is_refused_with_its_key(
    tmp_path: Path, outgoing: object, problem: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(write(tmp_path, outgoing), tmp_path)
    assert problem in str(caught.value)


def test_outgoing_takes_lists_of_100_entries(tmp_path: Path) -> None:
    lists = {"allow": ["10.0.0.0/8"] * 100, "proxyExcept": ["a-host"] * 100}
    outgoing = load(write(tmp_path, lists), tmp_path).ops.outgoing
    assert (len(outgoing.allow), len(outgoing.proxy_except)) == (100, 100)


def test_outgoing_proxy_url_may_end_with_a_slash(tmp_path: Path) -> None:
    config = load(write(tmp_path, {"proxy": "http://proxy.example.org:3128/"}), tmp_path)
    assert config.egress_proxy == EgressProxy("proxy.example.org", 3128, None, ())


@pytest.mark.parametrize("credentials", ["fw", ":word", "fw:", "fw:wo\u2028rd"])
def test_outgoing_proxy_credentials_malformed_are_refused_unshown(
    tmp_path: Path, credentials: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load({**write(tmp_path, {}), "FW_OUTGOING_PROXY_AUTH": credentials}, tmp_path)
    assert "FW_OUTGOING_PROXY_AUTH must be user:password" in str(caught.value)
