"""`error` is a kind, a colon and one plain sentence (B-168)."""

from __future__ import annotations

import pytest

from fw_actors.http import (
    ConnectError,
    DnsError,
    NetworkError,
    ProtocolError,
    ResponseTimeout,
    TlsError,
)

KINDS = [
    (DnsError, "dns"),
    (ConnectError, "connect"),
    (TlsError, "tls"),
    (ResponseTimeout, "timeout"),
    (ProtocolError, "protocol"),
]


@pytest.mark.parametrize(("error", "kind"), KINDS)
def test_network_error_reads_as_kind_and_sentence(error: type[NetworkError], kind: str) -> None:
    assert str(error("It broke.")) == f"{kind}: It broke."
    assert (error.kind, error("It broke.").sentence) == (kind, "It broke.")


def test_network_error_base_cannot_be_raised() -> None:
    with pytest.raises(TypeError):
        NetworkError("It broke.")
