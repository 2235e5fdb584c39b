"""Password hashes of other systems: bcrypt, scrypt and PBKDF2, as common libraries write them.

They are used until their owner's next sign-in, which replaces them by an argon2 hash.

| Scheme | Forms |
|---|---|
| bcrypt | `$2a$`, `$2b$`, `$2y$`; Django's `bcrypt$` and `bcrypt_sha256$` before one of these |
| scrypt | Django's `scrypt$`, Werkzeug's `scrypt:`, passlib's `$scrypt$` |
| PBKDF2 | with SHA-1, SHA-256 or SHA-512: Django's, Werkzeug's and passlib's |

The cost of a hash is bounded, because it may come from an edited file.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import string
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

MAX_HASH_CHARACTERS: Final = 1000
_BCRYPT_COSTS: Final = range(4, 16)
_BCRYPT_BYTES: Final = 72  # bcrypt ignores what follows
_BCRYPT_DIGITS: Final = "./" + string.ascii_uppercase + string.ascii_lowercase + string.digits
_MAX_ITERATIONS: Final = 10_000_000
_MAX_SCRYPT_BYTES: Final = 256 * 1024 * 1024
_MAX_PARALLELISM: Final = 16
_SPARE_BYTES: Final = 1024 * 1024
_MIN_DIGEST_BYTES: Final = 16
_BLOCK_BYTES: Final = {"sha1": 20, "sha256": 32, "sha512": 64}
_DECOY_SALT: Final = bytes(16)
_DECOY_DIGEST: Final = bytes(32)
_BCRYPT, _BCRYPT_SHA256, _SCRYPT, _PBKDF2 = "bcrypt", "bcrypt-sha256", "scrypt", "pbkdf2"


class UnusableHashError(ValueError):
    """Raised for a password hash that cannot be imported; the message never quotes it."""


@dataclass(frozen=True, slots=True)
class ImportedCost:
    """The cost of a hash of another system: its scheme, and the scheme's parameters.

    bcrypt: the exponent; scrypt: N, r, p; PBKDF2: the iterations, with the digest in the scheme.
    """

    scheme: str
    parameters: tuple[int, ...]

    @property
    def text(self) -> str:
        """The cost as text, such as `bcrypt 12`; `cost_from` reads it."""
        return f"{self.scheme} {','.join(map(str, self.parameters))}"

    def spend(self, password: bytes) -> None:
        """Compute one hash of this cost that matches no password. Raises: ModuleNotFoundError."""
        if self.scheme in (_BCRYPT, _BCRYPT_SHA256):
            salt = b"$2b$%02d$%s" % (self.parameters[0], b"." * 22)
            _bcrypt(self.scheme, password, salt)
        else:
            ImportedHash(self, _DECOY_SALT, _DECOY_DIGEST).fits(password)


def cost_from(text: str) -> ImportedCost:
    """Return the cost that `ImportedCost.text` wrote."""
    scheme, _, parameters = text.partition(" ")
    return ImportedCost(scheme, tuple(map(int, parameters.split(","))))


@dataclass(frozen=True, slots=True)
class ImportedHash:
    """A hash of another system; of bcrypt the digest is the whole text, which holds the salt."""

    cost: ImportedCost
    salt: bytes = field(repr=False)
    digest: bytes = field(repr=False)

    def fits(self, password: bytes) -> bool:
        """Return whether a password has this hash. Takes as long as the scheme is made to.

        Raises: ModuleNotFoundError if the library for bcrypt is not installed.
        """
        scheme, parameters = self.cost.scheme, self.cost.parameters
        if scheme in (_BCRYPT, _BCRYPT_SHA256):
            computed = _bcrypt(scheme, password, self.digest)
        elif scheme == _SCRYPT:
            n, r, p = parameters
            computed = hashlib.scrypt(
                password,
                salt=self.salt,
                n=n,
                r=r,
                p=p,
                maxmem=_scrypt_bytes(n, r, p) + _SPARE_BYTES,
                dklen=len(self.digest),
            )
        else:
            # The first block alone: each further one would cost all iterations again, beyond the
            # limit of a hash and the cost of its decoy.
            digest = scheme.partition("-")[2]
            size = min(len(self.digest), _BLOCK_BYTES[digest])
            computed = hashlib.pbkdf2_hmac(digest, password, self.salt, parameters[0], dklen=size)
            return hmac.compare_digest(computed, self.digest[:size])
        return hmac.compare_digest(computed, self.digest)


def _scrypt_bytes(n: int, r: int, p: int) -> int:
    """Return the memory that OpenSSL needs: p blocks, N blocks, and two for its own work."""
    return 128 * r * (n + p + 2)


def _bcrypt(scheme: str, password: bytes, salt: bytes) -> bytes:
    import bcrypt  # an extra: few sites import such hashes

    if scheme == _BCRYPT_SHA256:
        password = binascii.hexlify(hashlib.sha256(password).digest())
    return bcrypt.hashpw(password[:_BCRYPT_BYTES], salt)


def parse_imported(text: str) -> ImportedHash:
    """Return a hash of another system. Raises: UnusableHashError."""
    if len(text) > MAX_HASH_CHARACTERS:
        raise UnusableHashError(f"a hash must have at most {MAX_HASH_CHARACTERS:,} characters")
    for pattern, read in _FORMS:
        match = pattern.fullmatch(text)
        if match is not None:
            parsed = read(match)
            _check(parsed)
            return parsed
    raise UnusableHashError(
        "the hash must be argon2, bcrypt ($2a$, $2b$, $2y$), scrypt, or PBKDF2 "
        "with SHA-1, SHA-256 or SHA-512"
    )


def imported_or_none(text: str) -> ImportedHash | None:
    """Return a stored hash of another system; None for any other text."""
    try:
        return parse_imported(text)
    except UnusableHashError:
        return None


def _check(parsed: ImportedHash) -> None:
    scheme, parameters = parsed.cost.scheme, parsed.cost.parameters
    if scheme in (_BCRYPT, _BCRYPT_SHA256):
        if parameters[0] not in _BCRYPT_COSTS:
            low, high = _BCRYPT_COSTS[0], _BCRYPT_COSTS[-1]
            raise UnusableHashError(f"the cost of bcrypt must be between {low} and {high}")
        return
    if len(parsed.digest) < _MIN_DIGEST_BYTES or not parsed.salt:
        raise UnusableHashError(
            f"the hash must have a salt, and a digest of at least {_MIN_DIGEST_BYTES} bytes"
        )
    if scheme == _SCRYPT:
        n, r, p = parameters
        if n < 2 or n & (n - 1) or not r or not 1 <= p <= _MAX_PARALLELISM:
            raise UnusableHashError(
                "scrypt must have a power of two above 1 as N, at least 1 as r, and between 1 and "
                f"{_MAX_PARALLELISM} as p"
            )
        if n.bit_length() > 16 * r:  # RFC 7914, section 2: N must be less than 2^(128 * r / 8)
            raise UnusableHashError("N of scrypt must be less than 2^(16 * r)")
        if _scrypt_bytes(n, r, p) > _MAX_SCRYPT_BYTES:
            limit = _MAX_SCRYPT_BYTES // 1024**2
            raise UnusableHashError(f"scrypt must need at most {limit} MiB")
    elif not 1 <= parameters[0] <= _MAX_ITERATIONS:
        raise UnusableHashError(f"PBKDF2 must have between 1 and {_MAX_ITERATIONS:,} iterations")


def _base64(text: str) -> bytes:
    """Decode base64, with or without padding, and passlib's with a dot for the plus."""
    text = text.replace(".", "+").rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        raise UnusableHashError("the hash must contain valid base64") from None


def _of_bcrypt(scheme: str) -> Callable[[re.Match[str]], ImportedHash]:
    def read(match: re.Match[str]) -> ImportedHash:
        text = _canonical_bcrypt(match[1]).encode()
        return ImportedHash(ImportedCost(scheme, (int(match[2]),)), b"", text)

    return read


def _canonical_bcrypt(text: str) -> str:
    """Clear the unused bits of the last digits of salt and digest.

    Some systems wrote random ones. They mean nothing, but the library refuses such a salt, and
    computes digests without them.
    """
    salt_end = len("$2b$12$") + 21
    salt, digest = _BCRYPT_DIGITS.index(text[salt_end]), _BCRYPT_DIGITS.index(text[-1])
    return (
        f"{text[:salt_end]}{_BCRYPT_DIGITS[salt & 0b110000]}"
        f"{text[salt_end + 1 : -1]}{_BCRYPT_DIGITS[digest & 0b111100]}"
    )


def _pbkdf2(digest: str, iterations: str, salt: bytes, hash_bytes: bytes) -> ImportedHash:
    return ImportedHash(ImportedCost(f"{_PBKDF2}-{digest}", (int(iterations),)), salt, hash_bytes)


def _scrypt(n: int, r: str, p: str, salt: bytes, hash_bytes: bytes) -> ImportedHash:
    return ImportedHash(ImportedCost(_SCRYPT, (n, int(r), int(p))), salt, hash_bytes)


_TWO: Final = r"(\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{53})"
_DIGESTS: Final = "(sha1|sha256|sha512)"
_NUMBER: Final = "([0-9]{1,9})"
_SALT: Final = r"([^$\0]{1,256})"  # PostgreSQL's text holds no NUL
_HEX: Final = "((?:[0-9a-f]{2}){1,128})"
_B64: Final = "([A-Za-z0-9+/.]{1,200}={0,2})"

_FORMS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], ImportedHash]], ...]] = (
    (re.compile(rf"(?:bcrypt\$)?{_TWO}"), _of_bcrypt(_BCRYPT)),
    (re.compile(rf"bcrypt_sha256\${_TWO}"), _of_bcrypt(_BCRYPT_SHA256)),
    (
        re.compile(rf"pbkdf2_{_DIGESTS}\${_NUMBER}\${_SALT}\${_B64}"),
        lambda m: _pbkdf2(m[1], m[2], m[3].encode(), _base64(m[4])),
    ),
    (
        re.compile(rf"pbkdf2:{_DIGESTS}:{_NUMBER}\${_SALT}\${_HEX}"),
        lambda m: _pbkdf2(m[1], m[2], m[3].encode(), bytes.fromhex(m[4])),
    ),
    (
        re.compile(rf"\$pbkdf2(?:-(sha256|sha512))?\${_NUMBER}\${_B64}\${_B64}"),
        lambda m: _pbkdf2(m[1] or "sha1", m[2], _base64(m[3]), _base64(m[4])),
    ),
    (
        re.compile(rf"scrypt\${_NUMBER}\${_SALT}\${_NUMBER}\${_NUMBER}\${_B64}"),
        lambda m: _scrypt(int(m[1]), m[3], m[4], m[2].encode(), _base64(m[5])),
    ),
    (
        re.compile(rf"scrypt:{_NUMBER}:{_NUMBER}:{_NUMBER}\${_SALT}\${_HEX}"),
        lambda m: _scrypt(int(m[1]), m[2], m[3], m[4].encode(), bytes.fromhex(m[5])),
    ),
    (
        re.compile(rf"\$scrypt\$ln=([0-9]{{1,2}}),r={_NUMBER},p={_NUMBER}\${_B64}\${_B64}"),
        lambda m: _scrypt(1 << int(m[1]), m[2], m[3], _base64(m[4]), _base64(m[5])),
    ),
)
