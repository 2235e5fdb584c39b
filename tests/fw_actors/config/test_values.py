"""The parsing of single variables (C-54 to C-71)."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.config import parsing
from fw_actors.config.model import Argon2, ProxyTrustPolicy
from fw_actors.config.parsing import UnusableValueError

READERS: list[Callable[[str], object]] = [
    parsing.argon2,
    parsing.bind,
    parsing.clock_offset,
    parsing.database,
    parsing.dotted_function,
    parsing.host,
    parsing.one_of("on", "off"),
    parsing.public_url,
    parsing.sender,
    parsing.trust_proxy,
    parsing.whole(1, 65535),
]


def refuses(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(UnusableValueError, match=r"^must "):
        read(text)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://fw.example.test", "https://fw.example.test"),
        ("https://fw.example.test/", "https://fw.example.test"),
        ("http://127.0.0.1:1", "http://127.0.0.1:1"),
        ("HTTPS://FW.Example.test:8443", "https://fw.example.test:8443"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("https://example.test/fw/", "https://example.test/fw"),
        ("https://xn--bcher-kva.example", "https://xn--bcher-kva.example"),
        ("https://x.example:08443", "https://x.example:8443"),
        ("https://x.example/a%20b/.well", "https://x.example/a%20b/.well"),
    ],
)
def test_public_url_is_http_or_https_with_a_host(text: str, url: str) -> None:
    assert parsing.public_url(text) == url


@pytest.mark.parametrize(
    "text",
    [
        "not a url",
        "fw.example.test",
        "ftp://x.example",
        "https://",
        "https:///path",
        "https://user@x.example",
        "https://user:pw@x.example",
        "https://@x.example",
        "https://x.example?",
        "https://x.example/?a=b",
        "https://x.example/#",
        "https://x.example:99999",
        "https://x.example:0",
        "https://x.example:port",
        "https://x example",
        "https://x.example/a b",
        "https://x.example\\@y.example",
        "https://bücher.example",
        "https://[::1",
        "https://1.2.3",
        "https://0x7f000001",
        "https://x.example.0x1",
        'https://x.example/"><script>',
        "https://x.example:",
        "https://x.example:/fw",
        "https://[::1]:",
        "https://[::1]x",
        "https://[v1.a]",
        "https://::1",
        "https://x.example:+80",
        "https://x.example:65536",
        "https://x.example/../fw",
        "https://x.example/fw/.",
        "https://x.example/%2E%2e",
        "https://x.example/%zz",
        "https://x.example/a%",
    ],
)
def test_public_url_refuses_other_text(text: str) -> None:
    """A link of a mail must not begin with a URL that browsers read differently (C-54)."""
    refuses(parsing.public_url, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8000", ("127.0.0.1", 8000)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("[::1]:65535", ("::1", 65535)),
        ("localhost:80", ("localhost", 80)),
    ],
)
def test_bind_is_host_and_port(text: str, expected: tuple[str, int]) -> None:
    """Port 0 takes a free one (C-55)."""
    assert parsing.bind(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "nonsense:port", "8000", ":8000", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "::1:80",
        "[127.0.0.1]:80", "[::1%eth0]:80", "127.0.0.1:-1", "127.0.0.1:8_0", "127.0.0.1:٨", "1.2:80",
        "a b:80", "[]:80",
    ],
)  # fmt: skip
def test_bind_refuses_other_text(text: str) -> None:
    refuses(parsing.bind, text)


@pytest.mark.parametrize(
    ("text", "every_peer", "networks"),
    [
        ("off", False, []),
        ("on", True, []),
        ("ON", True, []),
        ("10.0.0.0/8,::1", False, ["10.0.0.0/8", "::1/128"]),
        ("10.1.2.3 , fd00::/8", False, ["10.1.2.3/32", "fd00::/8"]),
        ("::ffff:10.0.0.0/104", False, ["10.0.0.0/8"]),
        ("::ffff:0:0/96", False, ["0.0.0.0/0"]),
    ],
)
def test_trust_proxy_is_on_off_or_networks(
    text: str, every_peer: bool, networks: list[str]
) -> None:
    """FW_TRUST_PROXY is `on`, `off` or a list of networks (C-56)."""
    expected = ProxyTrustPolicy(every_peer, tuple(ip_network(network) for network in networks))
    assert parsing.trust_proxy(text) == expected


@pytest.mark.parametrize("text", ["perhaps", "10.0.0.0/99", "10.0.0.1/8", "on,off", "::1,", "1"])
def test_trust_proxy_refuses_other_text(text: str) -> None:
    refuses(parsing.trust_proxy, text)


@pytest.mark.parametrize(
    "text",
    [
        "sqlite:///data/fw.db", "sqlite:////var/lib/fw/fw.db", "postgresql://u:p@db.test:5432/fw",
        "postgresql://u:p@db1:5432,db2:5433,db3/fw", "postgresql://u@[::1]:5432,[::2]:5433/fw",
    ],
)  # fmt: skip
def test_database_is_a_file_or_a_server(text: str) -> None:
    """C-58. As in libpq, each of several hosts may have a port."""
    assert parsing.database(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "data/fw.db", "sqlite://data/fw.db", "sqlite:///", "sqlite:///:memory:", "sqlite:///data/", "sqlite:///a?b=c",
        "sqlite:///a#b", "postgresql://db.test/f w",
        "mysql://x/y", "postgresql://db.test", "postgresql:fw", "postgresql://db:99999/fw",
        "sqlite:", "postgresql://db1:5432,db2:99999/fw", "postgresql://db1:0,db2/fw",
    ],
)  # fmt: skip
def test_database_refuses_other_urls(text: str) -> None:
    refuses(parsing.database, text)


@pytest.mark.parametrize(
    "text", ["desk@example.test", "Desk <desk@example.test>", '"D, E" <d@example.test>']
)
def test_sender_is_one_address(text: str) -> None:
    assert parsing.sender(text) == text


@pytest.mark.parametrize(
    "text",
    ["desk", "a@x.test, b@x.test", "a b@x.test", ".a@x.test", "a@x test", "A <a@x.test", "a@1.2",
     "A <a@x.test> B", "D, E <d@x.test>", "<>", "@x.test", "a@", "Desk", "a@x.test\nBcc: b@x.test",
     "x" * 320 + "@x.test", "a@::1", "A <a@::1>", "a@x.test.", "a..b@x.test"],
)  # fmt: skip
def test_sender_refuses_other_text(text: str) -> None:
    refuses(parsing.sender, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("19456,2,1", Argon2(19456, 2, 1)), (" 65536 , 3 , 1", Argon2(65536, 3, 1)),
     ("8,1,1", Argon2(8, 1, 1)), ("1048576,16,16", Argon2(1048576, 16, 16))],
)  # fmt: skip
def test_argon2_is_memory_time_and_parallelism(text: str, expected: Argon2) -> None:
    assert parsing.argon2(text) == expected


@pytest.mark.parametrize(
    "text",
    ["1,2", "x", "1,2,3,4", "7,1,1", "15,1,2", "19456,0,1", "19456,1,0", "1048577,1,1",
     "19456,17,1",      "136,1,17", "-1,1,1", "1e3,1,1", ""],
)  # fmt: skip
def test_argon2_refuses_other_costs(text: str) -> None:
    """C-62."""
    refuses(parsing.argon2, text)


@pytest.mark.parametrize(("text", "seconds"), [("0", 0.0), ("-61", -61.0), ("172800.5", 172800.5),
                                               ("-3162240000", -3162240000.0)])  # fmt: skip
def test_clock_offset_is_a_number_of_seconds(text: str, seconds: float) -> None:
    assert parsing.clock_offset(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf", "-inf", "1e300", "3162240001"])
def test_clock_offset_refuses_other_text(text: str) -> None:
    refuses(parsing.clock_offset, text)


@pytest.mark.parametrize("text", ["bbmail.send", "shop.mail.send"])
def test_dotted_function_is_a_module_path_and_name(text: str) -> None:
    assert parsing.dotted_function(text) == text


@pytest.mark.parametrize("text", ["send", "a..b", ".a", "a.", "a b.c", "a-b.c", "a.b()", "größe.x"])
def test_dotted_function_refuses_other_text(text: str) -> None:
    refuses(parsing.dotted_function, text)


@pytest.mark.parametrize("text", ["mail.example.test", "127.0.0.1", "::1", "a_b", "x."])
def test_host_is_a_name_or_an_address(text: str) -> None:
    assert parsing.host(text) == text


@pytest.mark.parametrize(
    "text",
    ["", "a b", "-a", "1.2.3", "[::1]", "a..b", "a" * 64, "a." * 130, "fe80::1%eth0", "x:25"],
)
def test_host_refuses_other_text(text: str) -> None:
    refuses(parsing.host, text)


@pytest.mark.parametrize("text", ["0", "65536", "99999", "+1", "1.0", "", "1" * 5000])
def test_whole_refuses_numbers_out_of_range(text: str) -> None:
    refuses(parsing.whole(1, 65535), text)


def test_word_of_variable_is_shown_cut_and_in_ascii() -> None:
    with pytest.raises(UnusableValueError) as refused:
        parsing.one_of("on", "off")("ö" + "x" * 50)
    assert str(refused.value) == rf"must be one of on, off, not '\xf6{'x' * 39}'"


@pytest.mark.parametrize("read", READERS)
@given(text=st.text())
def test_parsing_reads_or_refuses_any_text_in_one_sentence(
    read: Callable[[str], object], text: str
) -> None:
    try:
        read(text)
        sentence = "must "
    except UnusableValueError as error:
        sentence = str(error)
    assert sentence.startswith("must ")
    assert sentence.isprintable()
