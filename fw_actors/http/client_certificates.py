"""Client certificates: files that the environment names, with which a receiver knows the service.

A renewed file is used by the next new connection, without a restart (B-370 to B-373).
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping

from fw_actors.config import ClientCertificate
from fw_actors.http.errors import TlsError
from fw_actors.runtime.clock import MS_PER_SECOND

Stamp = tuple[int, int, int, int]


class UnusableCertificateError(ValueError):
    """Raised for files that are no certificate with its key; the text is a whole sentence."""


class ClientContexts:
    """The TLS contexts of the certificates, each made for its first connection."""

    def __init__(
        self, certificates: Mapping[str, ClientCertificate], trust: Callable[[], ssl.SSLContext]
    ) -> None:
        """`trust` makes a context that verifies receivers."""
        self._certificates, self._trust = certificates, trust
        self._made: dict[str, tuple[Stamp, ssl.SSLContext]] = {}

    def of(self, name: str) -> ssl.SSLContext:
        """Return the context of a certificate, made anew when its files have changed.

        Raises: TlsError if there is no such certificate, or its files can't be used.
        """
        certificate = self._certificates.get(name)
        if certificate is None:
            raise TlsError(f"The client certificate {name} is not in this process's environment.")
        try:
            stamp = _stamp(certificate)
            made = self._made.get(name)
            if made is None or made[0] != stamp:
                context = self._trust()
                load_certificate(context, certificate)
                made = self._made[name] = stamp, context
        except OSError as error:
            reason = error.strerror
            raise TlsError(f"The client certificate {name} can't be read: {reason}.") from None
        except UnusableCertificateError as error:
            raise TlsError(str(error)) from None
        return made[1]


def load_certificate(context: ssl.SSLContext, certificate: ClientCertificate) -> None:
    """Give a context a certificate and its key. Raises: UnusableCertificateError."""
    name = certificate.name
    try:
        context.load_cert_chain(certificate.chain, certificate.key, password=_no_password)
    except ssl.SSLError:
        reason = "the files hold no certificate with its key, in PEM and without a password"
    except OSError as error:
        reason = f"a file can't be read ({error.strerror})"
    else:
        return
    sentence = f"The client certificate {name} can't be used: {reason}."
    raise UnusableCertificateError(sentence)


def check_certificate(certificate: ClientCertificate) -> None:
    """Refuse files that no connection could use. Raises: UnusableCertificateError."""
    load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate)


def _no_password() -> str:
    return ""  # OpenSSL would ask on the terminal


def _stamp(certificate: ClientCertificate) -> Stamp:
    chain, key = os.stat(certificate.chain), os.stat(certificate.key)
    return chain.st_mtime_ns, chain.st_ino, key.st_mtime_ns, key.st_ino


def end_of(certificate: ClientCertificate) -> int:
    """Return when a usable certificate ends, in ms since the epoch.

    Raises: UnusableCertificateError, OSError.
    """
    check_certificate(certificate)
    from cryptography import x509  # doctor alone asks

    own = x509.load_pem_x509_certificates(certificate.chain.read_bytes())[0]
    return round(own.not_valid_after_utc.timestamp() * MS_PER_SECOND)
