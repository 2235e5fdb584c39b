"""How the values of variables are read: each function judges one form and returns what it says.

All raise UnusableValueError with the rest of a sentence that begins with the variable's name.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final, TypeVar
from urllib.parse import SplitResult, urlsplit

from fw_actors.config.model import MOST_ARGON2, Argon2, ProxyTrustPolicy

T = TypeVar("T", bound=str)

_LABEL: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME: Final = re.compile(rf"(?!.{{254}}){_LABEL}(?:\.{_LABEL})*\.?\Z")
_NUMBERS_ONLY: Final = re.compile(r"[0-9.]+\Z")
_URL_PATH: Final = re.compile(r"[A-Za-z0-9._~/%-]*\Z")
_LOCAL: Final = r"(?!\.)[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}(?<!\.)"
_NAME: Final = r'(?:"[^"\\]*" *|[^<>()\[\],;:@"\\]*)'
_SENDER: Final = re.compile(
    rf"(?:{_LOCAL}@(?P<only_host>[^\s<>@]+)|{_NAME}<{_LOCAL}@(?P<host>[^\s<>@]+)>)\Z"
)
_WHOLE: Final = re.compile(r"[0-9]{1,9}\Z")
_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\Z", re.ASCII)
_LONGEST_ADDRESS: Final = 320
_MOST_OFFSET_SECONDS: Final = 100 * 366 * 86_400


class UnusableValueError(ValueError):
    """Raised for a value that can't be used; the text follows the variable's name."""


def judge_characters(text: str) -> None:
    """Refuse control characters, and bytes that are no UTF-8 (PEP 383)."""
    if any(unicodedata.category(c) == "Cs" for c in text):
        raise UnusableValueError("must be valid UTF-8")
    if any(unicodedata.category(c) == "Cc" for c in text):
        raise UnusableValueError("must not hold control characters")


def one_of(*choices: T) -> Callable[[str], T]:
    """Return a reader of one word out of `choices`, in any case."""
    by_name: dict[str, T] = {choice: choice for choice in choices}

    def parse(text: str) -> T:
        found = by_name.get(text.lower())
        if found is None:
            shown = text[:40].encode("ascii", "backslashreplace").decode()
            raise UnusableValueError(f"must be one of {', '.join(choices)}, not {shown!r}")
        return found

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
    if _is_address(text) or (_HOST_NAME.match(text) and not _NUMBERS_ONLY.match(text)):
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
        raise UnusableValueError("must not hold a user or a password")
    if "?" in text or "#" in text or not _URL_PATH.match(parts.path):
        raise UnusableValueError("must end with the host, its port or a plain path")
    host(parts.hostname)
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/')}"


def database(text: str) -> str:
    """Read where the store is: sqlite:///path, relative to the site, or postgresql://…/name."""
    parts = _split(text)
    if parts.scheme == "sqlite":
        path = text.removeprefix("sqlite:///")
        if path == text or not path.strip("/") or path.startswith(":") or set(path) & set("?#"):
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


def sender(text: str) -> str:
    """Read the one address that mail comes from, with or without a name before it (RFC 5322)."""
    form = _SENDER.match(text)
    if form is None or len(text) > _LONGEST_ADDRESS:
        raise UnusableValueError("must be one address, such as Desk <desk@example.org>")
    host(form["host"] or form["only_host"])
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
        most = MOST_ARGON2
        if (
            1 <= lanes <= most.parallelism
            and 1 <= time <= most.time
            and 8 * lanes <= memory <= most.memory_kib
        ):
            return Argon2(memory, time, lanes)
    raise UnusableValueError(
        "must be memory_kib,time,parallelism, such as 19456,2,1; at most "
        f"{MOST_ARGON2.memory_kib},{MOST_ARGON2.time},{MOST_ARGON2.parallelism}"
    )


def clock_offset(text: str) -> float:
    """Read seconds that are added to the wall clock; fractions and a minus are allowed."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not abs(seconds) <= _MOST_OFFSET_SECONDS:  # not a number is refused, too
        raise UnusableValueError("must be a number of seconds, at most a hundred years")
    return seconds


def _split(text: str) -> SplitResult:
    """Take a URL apart; white space and a port out of range are refused."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise UnusableValueError("must be a URL") from None
    if port == 0 or any(c.isspace() for c in text):
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
        if mapped is not None and network.prefixlen >= 96:
            return IPv4Network((mapped, network.prefixlen - 96))
    return network
