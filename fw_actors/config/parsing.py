"""Environment variables, the `.env` file and key files: their sources and parsers.

An empty variable counts as unset and takes precedence over `.env`, so that a variable can be
switched off. Each error is one sentence with the variable's name; it shows a value only if the
value must be one of a few words. Parsers raise UnusableValueError with the text that follows the
variable's name.

In `.env`, text between quotes is read literally. Without quotes, outer white space is removed, and
a `#` after white space begins a comment. Nothing is expanded, and each name may occur once.

A key file keeps the key out of the environment, which `ps` shows to its user. The file is, in this
order: that of FW_SECRET_KEY_FILE; systemd's credential `fw_secret_key`; `secret.key` beside
fw.json.

The module has more than 500 lines because it has a parser for each of many variables.
"""

from __future__ import annotations

import math
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import SplitResult, urlsplit

from fw_actors.config.model import (
    MAX_ARGON2,
    VAULT_KEY,
    Argon2,
    ClientCertificate,
    ProxyTrustPolicy,
    Secrets,
)
from fw_actors.config.policy import Kind, nearest

Word = TypeVar("Word", bound=str)

_LABEL: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME: Final = re.compile(rf"(?!.{{254}}){_LABEL}(?:\.{_LABEL})*\.?\Z")
# A name that ends with a number is an address to getaddrinfo and browsers: 127.1, 0x7f000001.
_ENDS_WITH_NUMBER: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?\Z", re.IGNORECASE)
_AUTHORITY: Final = re.compile(r"(?:\[[^\[\]]*:[^\[\]]*\]|[^\[\]:]+)(?::[0-9]+)?\Z")
# Browsers would remove segments of dots, and a request with an incomplete escape is refused.
_URL_PATH: Final = re.compile(
    r"(?!.*/(?:\.|%2e){1,2}(?:/|\Z))(?:[A-Za-z0-9._~/-]|%[0-9A-Fa-f]{2})*\Z", re.IGNORECASE
)
_LOCAL: Final = r"(?!\.|[^@]*\.\.)[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}(?<!\.)"
_NAME: Final = r'(?:"[^"\\]*" *|[^<>()\[\],;:@"\\]*)'
_SENDER: Final = re.compile(
    rf"(?:{_LOCAL}@(?P<only_host>[^\s<>@]+)|{_NAME}<{_LOCAL}@(?P<host>[^\s<>@]+)>)\Z"
)
_WHOLE: Final = re.compile(r"[0-9]{1,9}\Z")
_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\Z", re.ASCII)
_MAX_ADDRESS_CHARACTERS: Final = 320
_MAX_OFFSET_SECONDS: Final = 100 * 366 * 86_400  # a century; the clock of the runtime loads trio


class UnusableValueError(ValueError):
    """Raised for an invalid value; the message follows the variable's name in a sentence."""


def validate_characters(text: str) -> None:
    """Refuse control characters and bytes that are not UTF-8 (PEP 383)."""
    if any(unicodedata.category(c) == "Cs" for c in text):
        raise UnusableValueError("must be valid UTF-8")
    if any(unicodedata.category(c) == "Cc" for c in text):
        raise UnusableValueError("must not contain control characters")


def one_of(*choices: Word) -> Callable[[str], Word]:
    """Return a reader of one of the words `choices`, in any case."""
    by_name: dict[str, Word] = {choice: choice for choice in choices}

    def parse(text: str) -> Word:
        word = by_name.get(text.lower())
        if word is None:
            raise UnusableValueError(f"must be one of {', '.join(choices)}, not {text[:40]!a}")
        return word

    return parse


def whole(low: int, high: int) -> Callable[[str], int]:
    """Return a reader of a whole number from `low` to `high`."""

    def parse(text: str) -> int:
        if not _WHOLE.match(text) or not low <= int(text) <= high:
            raise UnusableValueError(f"must be a whole number from {low} to {high}")
        return int(text)

    return parse


def host(text: str) -> str:
    """Read a host: a name in ASCII or an address, IPv6 without brackets."""
    if _is_address(text) or (_HOST_NAME.match(text) and not _ENDS_WITH_NUMBER.match(text)):
        return text
    raise UnusableValueError("must be a host name in ASCII or an IP address")


def bind(text: str) -> tuple[str, int]:
    """Read `host:port`, IPv6 in brackets; port 0 means a free one."""
    name, _, port = text.rpartition(":")
    bracketed = name.startswith("[") and name.endswith("]") and ":" in name
    try:
        if bracketed or ":" not in name:
            return host(name[1:-1] if bracketed else name), whole(0, 65_535)(port)
    except UnusableValueError:
        pass
    raise UnusableValueError("must be host:port, such as 127.0.0.1:8000 or [::1]:8000")


def public_url(text: str) -> str:
    """Read the URL that links begin with; returned without a slash at its end."""
    parts = _split(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UnusableValueError("must be a URL such as https://fw.example.org")
    if parts.username is not None or parts.password is not None:
        raise UnusableValueError("must not contain a user or a password")
    if not _AUTHORITY.match(parts.netloc):
        raise UnusableValueError("must have a host, and a port if a colon follows the host")
    if "?" in text or "#" in text or not _URL_PATH.match(parts.path):
        raise UnusableValueError("must end with the host, its port or a plain path")
    name = host(parts.hostname)
    authority = f"[{name}]" if ":" in name else name
    if parts.port is not None:
        authority += f":{parts.port}"
    return f"{parts.scheme}://{authority}{parts.path.rstrip('/')}"


def database(text: str) -> str:
    """Read where the store is: sqlite:///path, relative to the site, or postgresql://…/name.

    As in libpq, several hosts, each with its port, are separated by commas.
    """
    parts = _split(text, several=True)
    if parts.scheme == "sqlite":
        path = text.removeprefix("sqlite:///")
        is_file = path != text and path.strip("/") and not path.endswith("/")
        if not is_file or path.startswith(":") or set(path) & set("?#"):
            raise UnusableValueError("must name a file, such as sqlite:///data/fw.db")
        return text
    if parts.scheme == "postgresql" and "://" in text and parts.path.strip("/"):
        return text
    raise UnusableValueError("must be sqlite:///path or postgresql://user@host/database")


def trust_proxy(text: str) -> ProxyTrustPolicy:
    """Read `off`, `on`, or networks in a list with commas. IPv4-mapped IPv6 counts as IPv4."""
    if text.lower() in ("on", "off"):
        return ProxyTrustPolicy(text.lower() == "on", ())
    return ProxyTrustPolicy(False, tuple(_network(entry.strip()) for entry in text.split(",")))


def credentials(text: str) -> str:
    """Read `user:password`; the user has no colon (RFC 7617 2)."""
    user, colon, password = text.partition(":")
    if not user or not colon or not password or not text.isprintable():
        raise UnusableValueError("must be user:password")
    return text


def sender(text: str) -> str:
    """Read the sender address of mail, with or without a display name (RFC 5322)."""
    form = _SENDER.match(text)
    if form is None or len(text) > _MAX_ADDRESS_CHARACTERS:
        raise UnusableValueError("must be one address, such as Desk <desk@example.org>")
    domain = form["host"] or form["only_host"]
    if ":" in domain or domain.endswith("."):  # a host, but not the domain of an address
        raise UnusableValueError("must be an address at a domain, such as desk@example.org")
    host(domain)
    return text


def dotted_function(text: str) -> str:
    """Read the path of a function, `module.function`."""
    if not _DOTTED.match(text):
        raise UnusableValueError("must be the dotted path of a function, such as shop.mail.send")
    return text


def argon2(text: str) -> Argon2:
    """Read `memory_kib,time,parallelism`; argon2 needs 8 KiB for each lane (RFC 9106, 3.1)."""
    numbers = [entry.strip() for entry in text.split(",")]
    if len(numbers) == 3 and all(_WHOLE.match(number) for number in numbers):
        memory, time, lanes = (int(number) for number in numbers)
        highest = MAX_ARGON2
        if (
            1 <= lanes <= highest.parallelism
            and 1 <= time <= highest.time
            and 8 * lanes <= memory <= highest.memory_kib
        ):
            return Argon2(memory, time, lanes)
    raise UnusableValueError(
        "must be memory_kib,time,parallelism, such as 19456,2,1; at most "
        f"{MAX_ARGON2.memory_kib},{MAX_ARGON2.time},{MAX_ARGON2.parallelism}"
    )


def clock_offset(text: str) -> float:
    """Read seconds that are added to the wall clock; fractions and a minus are allowed."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not abs(seconds) <= _MAX_OFFSET_SECONDS:  # not a number is refused, too
        raise UnusableValueError("must be a number of seconds, at most a hundred years")
    return seconds


def _split(text: str, *, several: bool = False) -> SplitResult:
    """Split a URL; white space and a port out of range are refused.

    `several`: whether the URL may have several hosts, separated by commas.
    """
    try:
        parts = urlsplit(text)
        hosts = parts.netloc.rpartition("@")[2]
        each = hosts.split(",") if several else [hosts]
        ports = [urlsplit(f"//{host}").port for host in each]
    except ValueError:
        raise UnusableValueError("must be a URL") from None
    if 0 in ports or any(c.isspace() for c in text):
        raise UnusableValueError("must be a URL")
    return parts


def _is_address(text: str) -> bool:
    try:
        return "%" not in str(ip_address(text))  # no zone
    except ValueError:
        return False


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        network = ip_network(text)
    except ValueError:
        raise UnusableValueError(
            "must be off, on, or networks such as 10.0.0.0/8,::1 without host bits"
        ) from None
    if isinstance(network, IPv6Network):
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:  # without host bits, so that its prefix has at least 96 bits
            return IPv4Network((mapped, network.prefixlen - 96))
    return network


_LINE_BREAK: Final = re.compile(r"\r\n|\n|\r")
_NOTHING: Final = re.compile(r"\s*(?:#.*)?\Z")
_ASSIGNMENT: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)\Z", re.DOTALL)
_QUOTED: Final = re.compile(r"""\s*(['"])(?P<text>.*?)\1\s*(?:\#.*)?\Z""", re.DOTALL)
_COMMENT: Final = re.compile(r"\s#.*", re.DOTALL)


@dataclass(frozen=True)
class DotEnv:
    """The values by name, and a sentence for each line that cannot be read."""

    values: dict[str, str]
    problems: tuple[str, ...]


def parse_dotenv(text: str) -> DotEnv:
    """Read the text of a `.env` file. No sentence shows a value, since it may be a password."""
    values: dict[str, str] = {}
    problems: list[str] = []
    for number, line in enumerate(_LINE_BREAK.split(text), 1):
        if _NOTHING.match(line):
            continue
        assignment = _ASSIGNMENT.match(line)
        if assignment is None:
            problems.append(f"line {number} is not NAME=value")
            continue
        name, value = assignment[1], _value(assignment[2])
        if value is None:
            problems.append(f"line {number}: the quotes around {name}'s value are not closed")
        elif name in values:
            problems.append(f"line {number}: {name} is defined twice")
        else:
            values[name] = value
    return DotEnv(values, tuple(problems))


def _value(text: str) -> str | None:
    """Return the value after the `=`; None if its quotes are not closed."""
    if text.lstrip().startswith(("'", '"')):
        quoted = _QUOTED.match(text)
        return quoted["text"] if quoted else None
    return _COMMENT.sub("", text).strip()


KEY_VARIABLE: Final = "FW_SECRET_KEY"
KEY_FILE_VARIABLE: Final = "FW_SECRET_KEY_FILE"
CREDENTIALS_VARIABLE: Final = "CREDENTIALS_DIRECTORY"
"""Set by systemd for a unit that has credentials (systemd.exec(5))."""
CREDENTIAL: Final = "fw_secret_key"
OWN_FILE: Final = "secret.key"
_MAX_KEY_BYTES: Final = 4096
_OPEN_TO_OTHERS: Final = stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP


class UnusableKeyFileError(Exception):
    """Raised for a file without a usable key; the message is a sentence that names the file."""


def credential_file(environ: Mapping[str, str]) -> Path | None:
    """Return the file of systemd's credential; None if the process has none."""
    folder = environ.get(CREDENTIALS_VARIABLE)
    file = Path(folder, CREDENTIAL) if folder else None
    return file if file is not None and file.exists() else None


def read_key(file: Path, *, guarded: bool = True) -> str:
    """Return the key in a file: its text without trailing line ends.

    `guarded`: refuse a file that other users may read, or its group may write. The group may read
    it, as in containers. systemd protects its credentials itself.

    Raises: UnusableKeyFileError.
    """
    try:
        with file.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            content = stream.read(_MAX_KEY_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        reason = getattr(error, "strerror", None) or "its name is not that of a file"
        raise UnusableKeyFileError(f"{file} cannot be read: {reason}") from None
    if guarded and mode & _OPEN_TO_OTHERS:
        raise UnusableKeyFileError(f"{file} is open to other users: chmod 600 {file}")
    if len(content) > _MAX_KEY_BYTES:
        raise UnusableKeyFileError(f"{file} is larger than {_MAX_KEY_BYTES:,} bytes: not a key")
    try:
        key = content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise UnusableKeyFileError(f"{file} is not UTF-8: use base64 of random bytes") from None
    if not key.strip() or "\0" in key:
        raise UnusableKeyFileError(f"{file} contains no key: it is empty or has zero bytes")
    return key


T = TypeVar("T")
D = TypeVar("D")

_PREFIX: Final = "FW_"
_CERTIFICATE: Final = re.compile(r"FW_CLIENT_(CERT|KEY)_([A-Z0-9_]{1,60})\Z")
_SECRET_NAME: Final = re.compile(r"FW_SECRET_([A-Z0-9_]+)\Z")
CONFIG_VARIABLE: Final = "FW_CONFIG"
VARIABLES: Final = (
    CONFIG_VARIABLE,
    "FW_ARGON2",
    "FW_BIND",
    "FW_CLOCK_OFFSET",
    "FW_DATABASE",
    "FW_LOG",
    "FW_LOG_LEVEL",
    "FW_LOGIN_DEMO_PASSWORD",
    "FW_LOGIN_DEMO_USER",
    "FW_LOGIN_NOTICE",
    "FW_MAIL_FROM",
    "FW_MAIL_METHOD",
    "FW_MAIL_TRANSPORT",
    "FW_MODE",
    "FW_OUTGOING_PROXY_AUTH",
    "FW_PUBLIC_URL",
    "FW_SMTP_HOST",
    "FW_SMTP_PASSWORD",
    "FW_SMTP_PORT",
    "FW_SMTP_SECURITY",
    "FW_SMTP_USER",
    "FW_TRUST_PROXY",
    "FW_WEBHOOKS",
)


@dataclass(frozen=True)
class Source:
    """A source of variables; `label` names it in messages."""

    label: str
    values: Mapping[str, str]


class Environment:
    """The variables of a site, read one by one; collects their problems."""

    def __init__(self, process: Mapping[str, str], file: Source) -> None:
        """`process` is the process's environment; `file` has the variables of `.env`."""
        self._sources = (Source("environment", process), file)
        self.problems: list[str] = []

    def raw_value(self, name: str) -> str | None:
        """Return a variable's unparsed value: "" if it is switched off, None if it is unset."""
        source = self._source_of(name)
        return None if source is None else source.values[name]

    def take(self, name: str, parse: Callable[[str], T], default: D) -> T | D:
        """Return the parsed value of a variable; `default` if it is unset or invalid.

        An UnusableValueError of `parse` is recorded as a problem.
        """
        value = self.raw_value(name)
        if not value:
            return default
        try:
            validate_characters(value.strip())
            return parse(value.strip())
        except UnusableValueError as error:
            self.refuse(name, str(error))
            return default

    def take_verbatim(self, name: str, kind: Kind) -> str | None:
        """Return a variable's value unchanged; None if it is unset or not of this kind."""
        value = self.raw_value(name)
        if not value:
            return None
        problem = kind.problem(value)
        if problem is not None:
            self.refuse(name, problem)
            return None
        return value

    def refuse(self, name: str, sentence: str) -> None:
        """Record a problem with a variable; `sentence` follows its name."""
        source = self._source_of(name) or self._sources[0]
        self.problems.append(f"{source.label}: {name} {sentence}")

    def secrets(self, folder: Path) -> Secrets:
        """Return the variables FW_SECRET_* of the process, but not of `.env` (C-80).

        `folder` is the site's; the key of Vault fields may be in a file there.
        """
        values = {}
        for name, value in self._sources[0].values.items():
            secret = _SECRET_NAME.match(name)
            if secret is None or name == KEY_FILE_VARIABLE:
                continue
            if _is_utf_8(value):
                values[secret[1].lower()] = value
            else:
                self.refuse(name, "must be valid UTF-8")
        file = self._key_file(folder)
        if file is None:
            return Secrets(values)
        try:
            key = read_key(file, guarded=file != credential_file(self._sources[0].values))
        except UnusableKeyFileError as error:
            self.problems.append(str(error))
            return Secrets(values)
        return Secrets({**values, VAULT_KEY: key}, file)

    def client_certificates(self, folder: Path) -> dict[str, ClientCertificate]:
        """Return FW_CLIENT_CERT_* with their keys; the paths are relative to the site's folder."""
        process, file = self._sources
        variables = {**file.values, **process.values}
        certificates = {}
        for variable, path in sorted(variables.items()):
            named = _CERTIFICATE.match(variable)
            if named is None or not path:
                continue
            kind, name = named[1], named[2]
            if "\0" in path or not _is_utf_8(path):
                self.refuse(variable, "must be a path")
            elif kind == "CERT":
                key = variables.get(f"FW_CLIENT_KEY_{name}") or path
                certificates[name] = ClientCertificate(name, folder / path, folder / key)
            elif not variables.get(f"FW_CLIENT_CERT_{name}"):
                self.refuse(variable, f"needs FW_CLIENT_CERT_{name} beside it")
        return certificates

    def _key_file(self, folder: Path) -> Path | None:
        """Return the file that has the key; None if the environment has it, or there is none."""
        process = self._sources[0].values
        named, credential = process.get(KEY_FILE_VARIABLE), credential_file(process)
        sources = {
            KEY_VARIABLE: process.get(KEY_VARIABLE),
            KEY_FILE_VARIABLE: named,
            f"systemd's credential {CREDENTIAL}": credential,
        }
        several = [name for name, value in sources.items() if value]
        if len(several) > 1:
            self.problems.append(
                f"{self._sources[0].label}: the key is given by {' and '.join(several)}; "
                "give it by one of them"
            )
            return None
        if named:
            return folder / named
        if credential is not None:
            return credential
        own = folder / OWN_FILE
        # A variable that is set but empty switches the key off.
        return own if KEY_VARIABLE not in process and own.exists() else None

    def warnings(self) -> Iterator[str]:
        """Yield a sentence for each ignored variable FW_*, in a fixed order."""
        process, file = self._sources
        for name in sorted(file.values):
            if name.startswith("FW_SECRET_"):
                yield (
                    f"{file.label}: {name} is ignored; secrets are read from the process's "
                    "environment only"
                )
        for name in sorted(process.values):
            if name.startswith("FW_SECRET_") and not _SECRET_NAME.match(name):
                yield (
                    f"{process.label}: {_shown(name)} is ignored; after FW_SECRET_ a name has only "
                    "A-Z, 0-9 and _"
                )
        if CONFIG_VARIABLE in file.values:
            yield (
                f"{file.label}: {CONFIG_VARIABLE} is ignored; set it in the environment, since it "
                "locates this file"
            )
        for source in (process, file):
            for name in sorted(source.values):
                if name.startswith(_PREFIX) and not _is_known(name):
                    # Without the prefix, which makes short names resemble each other.
                    variables = (*VARIABLES, KEY_VARIABLE, KEY_FILE_VARIABLE)
                    near = nearest(
                        name.removeprefix(_PREFIX),
                        (each.removeprefix(_PREFIX) for each in variables),
                    )
                    offer = f"; did you mean {_PREFIX}{near}?" if near else ""
                    yield f"{source.label}: {_shown(name)} is unknown and ignored{offer}"

    def _source_of(self, name: str) -> Source | None:
        return next((source for source in self._sources if name in source.values), None)


def _is_known(name: str) -> bool:
    return (
        name in VARIABLES or name.startswith("FW_SECRET_") or _CERTIFICATE.match(name) is not None
    )


def _is_utf_8(value: str) -> bool:
    """Return whether a value was UTF-8: Python decodes other bytes to surrogates (PEP 383)."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(name: str) -> str:
    return name[:60].encode("ascii", "backslashreplace").decode()
