"""The schema of `fw.json`: sections, value kinds, ranges and defaults, with all errors at once.

Keys, defaults and ranges are the rows C-16 to C-42. A problem is one sentence that names
section and key (C-14); the caller puts the file's name before it.

True and false are not numbers, and a whole number is written without a fraction.
"""

from __future__ import annotations

import json
import keyword
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from ipaddress import ip_network
from typing import Final, Protocol
from urllib.parse import urlsplit

from fw_actors.rules.identifiers import is_invisible
from fw_actors.rules.password_policy import MAX_RUNES

_LINE_CHARACTERS: Final = frozenset("\t\n\r")
_MAX_SHOWN_CHARACTERS: Final = 30
_NO_PROXY: Final = "must be a URL such as http://proxy.example.org:3128, or null"
_HOST_NAME: Final = re.compile(r"(?!.{254})\.?(?:[A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?")
_NUMERIC: Final = re.compile(r"[0-9.]+|.*[:/].*")  # if it is anything, an address or a network


class Kind(Protocol):
    """A kind of value that a key takes."""

    def problem(self, value: object) -> str | None:
        """Return the problem of a value, as a sentence without its subject, or None."""


@dataclass(frozen=True, slots=True)
class WholeKind:
    """A whole number from `low` to `high`, both included."""

    low: int
    high: int

    def problem(self, value: object) -> str | None:
        if isinstance(value, int) and not isinstance(value, bool) and self._holds(value):
            return None
        return f"must be a whole number from {self.low} to {self.high}, not {_value_or_kind(value)}"

    def _holds(self, value: int) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class WholeOrWordKind:
    """A whole number from `low` to `high`, both included, or one word."""

    low: int
    high: int
    word: str

    def problem(self, value: object) -> str | None:
        if value == self.word or WholeKind(self.low, self.high).problem(value) is None:
            return None
        return (
            f'must be a whole number from {self.low} to {self.high}, or "{self.word}", '
            f"not {_value_or_kind(value)}"
        )


@dataclass(frozen=True, slots=True)
class NumberKind:
    """A number from `low` to `high`, both included; fractions are allowed."""

    low: float
    high: float

    def problem(self, value: object) -> str | None:
        if isinstance(value, int | float) and not isinstance(value, bool) and self._holds(value):
            return None
        return f"must be a number from {self.low:g} to {self.high:g}, not {_value_or_kind(value)}"

    def _holds(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class FlagKind:
    """True or false; with `or_null`, also null."""

    or_null: bool = False

    def problem(self, value: object) -> str | None:
        if isinstance(value, bool) or (self.or_null and value is None):
            return None
        answers = "true, false or null" if self.or_null else "true or false"
        return f"must be {answers}, not {_value_or_kind(value)}"


@dataclass(frozen=True, slots=True)
class TextKind:
    """Text of at most `longest` characters; control characters never, line breaks with `lines`."""

    longest: int
    lines: bool = False
    blank: bool = False
    ascii: bool = False

    def problem(self, value: object) -> str | None:
        if not isinstance(value, str):
            return f"must be text, not {_value_or_kind(value)}"
        if len(value) > self.longest:
            return f"must have at most {self.longest:,} characters"
        if not self.blank and is_invisible(value):
            return "must not be blank"
        allowed = _LINE_CHARACTERS if self.lines else frozenset()
        if any(unicodedata.category(c) in ("Cc", "Cs") and c not in allowed for c in value):
            return "must not contain control characters or lone surrogates"
        if self.ascii and not value.isascii():
            return "must be ASCII"
        return None


@dataclass(frozen=True, slots=True)
class WordKind:
    """One of a few words."""

    words: tuple[str, ...]

    def problem(self, value: object) -> str | None:
        if value in self.words:
            return None
        return f"must be {' or '.join(map(json.dumps, self.words))}, not {_value_or_kind(value)}"


@dataclass(frozen=True, slots=True)
class NetworksKind:
    """A list of at most `max_length` networks, such as 10.1.0.0/16."""

    max_length: int

    def problem(self, value: object) -> str | None:
        if not isinstance(value, list):
            return f"must be a list of networks, not {_value_or_kind(value)}"
        if len(value) > self.max_length:
            return f"must have at most {self.max_length} networks"
        for number, entry in enumerate(value, 1):
            try:
                ip_network(entry if isinstance(entry, str) else "")
            except ValueError:
                return f"must contain networks such as 10.1.0.0/16; entry {number} is not one"
        return None


@dataclass(frozen=True, slots=True)
class HostsKind:
    """A list of at most `max_length` hosts, domains with a dot before them, or networks."""

    max_length: int

    def problem(self, value: object) -> str | None:
        if not isinstance(value, list):
            return f"must be a list of hosts, not {_value_or_kind(value)}"
        if len(value) > self.max_length:
            return f"must have at most {self.max_length} hosts"
        for number, entry in enumerate(value, 1):
            if not isinstance(entry, str) or not _is_host_or_network(entry):
                return (
                    "must contain hosts, domains such as .example.org or networks such as "
                    f"10.0.0.0/8; entry {number} is not one"
                )
        return None


@dataclass(frozen=True, slots=True)
class ProxyKind:
    """The URL of an HTTP proxy, or null."""

    def problem(self, value: object) -> str | None:
        if value is None:
            return None
        try:
            parts = urlsplit(value if isinstance(value, str) else "")
            whole = bool(parts.scheme == "http" and parts.port)
        except ValueError:
            return _NO_PROXY
        if not whole or not _is_host_or_network(parts.hostname or "") or parts.username is not None:
            return _NO_PROXY
        if parts.path not in ("", "/") or parts.query or parts.fragment:
            return _NO_PROXY
        return None


def _is_host_or_network(text: str) -> bool:
    """Whether a text is a host, a domain with a dot before it, an address, or a network."""
    if not _NUMERIC.fullmatch(text):
        return _HOST_NAME.fullmatch(text) is not None
    try:
        ip_network(text)
    except ValueError:
        return False
    return True


def kind_of(value: object) -> str:
    """Return the JSON type of a value in words, without its content."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "an object"


def _value_or_kind(value: object) -> str:
    """Return a number, true, false or null itself; for any other value only its kind."""
    if value is None or isinstance(value, int | float):
        shown = json.dumps(value)
        return shown if len(shown) <= _MAX_SHOWN_CHARACTERS else f"{shown[:_MAX_SHOWN_CHARACTERS]}…"
    return kind_of(value)


_MAX_COMPARED_CHARACTERS: Final = 80  # comparing costs the square of the length


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the known name that is most like `name` in any case, None when none is like it."""
    folded = {candidate.casefold(): candidate for candidate in candidates}
    matches = get_close_matches(name[:_MAX_COMPARED_CHARACTERS].casefold(), folded, n=1)
    return folded[matches[0]] if matches else None


AUTO: Final = "auto"
MAX_PROCESSES: Final = 64

RESERVED_APPS: Final = ("web", "supervisors", "tests", "scripts")
RESERVED_APP_PREFIX: Final = "fw_"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a section: its default, and the kind of its values."""

    name: str
    default: object
    kind: Kind


@dataclass(frozen=True, slots=True)
class Group:
    """Keys of a section that are an object of their own in it."""

    name: str
    keys: tuple[Key, ...]


SECTIONS: Final[Mapping[str, tuple[Key | Group, ...]]] = {
    "site": (Key("name", "fw", TextKind(140)),),
    "auth": (
        Key("sessionDays", 30, WholeKind(1, 3650)),
        Key("apiKeyDays", 0, WholeKind(0, 3650)),
        Key("minPasswordLength", 8, WholeKind(1, MAX_RUNES)),
        Key("maxLoginAttempts", 5, WholeKind(1, 1000)),
        Key("lockoutMinutes", 15, WholeKind(1, 10_080)),
        Key("resetMinutes", 60, WholeKind(1, 10_080)),
        Key("inviteHours", 72, WholeKind(1, 8760)),
        Key("secureCookie", None, FlagKind(or_null=True)),
        Key("selfServiceApiKeys", True, FlagKind()),
        Key("addressAttempts", 50, WholeKind(1, 1_000_000)),
        Key("recoveryAttempts", 20, WholeKind(1, 1_000_000)),
        Key("refuseCommonPasswords", False, FlagKind()),
        Key("sessionIdleDays", 0, WholeKind(0, 3650)),
        Key("newDeviceMail", False, FlagKind()),
        Key("breachedPasswords", None, TextKind(4096)),
    ),
    "login": (
        Key("notice", None, TextKind(4000, lines=True, blank=True)),
        Key("demoUser", None, TextKind(320, blank=True)),
        Key("demoPassword", None, TextKind(MAX_RUNES, blank=True)),
    ),
    "web": (
        Key("maxRequests", 1000, WholeKind(1, 100_000)),
        Key("hstsIncludeSubDomains", False, FlagKind()),
    ),
    "ops": (
        Key("webhookRetentionDays", 30, WholeKind(0, 36_500)),
        Key("auditRetentionDays", 365, WholeKind(0, 36_500)),
        Key("scheduler", True, FlagKind()),
        Key("deliveryConcurrency", 512, WholeKind(1, 4096)),
        Key("perReceiverConcurrency", 16, WholeKind(1, 1024)),
        Key("backoffSeconds", 30.0, NumberKind(0.1, 86_400)),
        Key("backoffCapSeconds", 3600.0, NumberKind(0.1, 86_400)),
        Key("honourRetryAfter", False, FlagKind()),
        Key("queryTimeoutSeconds", 5.0, NumberKind(0.1, 300)),
        Key("processes", 1, WholeOrWordKind(1, MAX_PROCESSES, AUTO)),
        Key("subscriptionRefresh", False, FlagKind()),
        Key("receiverNotice", 24, WholeKind(0, 8760)),
        Key("disableAfterDays", 0, WholeKind(0, 365)),
        Key("payloadDays", 0, WholeKind(0, 36_500)),
        Key("traceContext", False, FlagKind()),
        Group(
            "outgoing",
            (
                Key("private", "allow", WordKind(("allow", "deny"))),
                Key("allow", [], NetworksKind(100)),
                Key("proxy", None, ProxyKind()),
                Key("proxyExcept", [], HostsKind(100)),
            ),
        ),
    ),
}
APPS: Final = "apps"
_MAX_DIGITS: Final = 400  # Python reads this many quickly; no key takes more than seven


@dataclass(frozen=True)
class ParsedPolicy:
    """The content of a policy file.

    `sections` holds every key of every section, by its name in the file; one that is absent or
    has a problem holds its default.
    """

    sections: Mapping[str, Mapping[str, object]]
    apps: tuple[str, ...]
    problems: tuple[str, ...]


def parse_policy(text: str) -> ParsedPolicy:
    """Read the text of a policy file and collect all its problems."""
    problems: list[str] = []
    try:
        document = _decode(text, problems)
    except ValueError as error:
        document = {}
        problems.append(f"this is not JSON: {error}")
    except RecursionError:
        document = {}
        problems.append("this is not a policy: it is nested too deeply")
    if not isinstance(document, dict):
        problems.append(f"the file must contain an object, not {kind_of(document)}")
        document = {}
    allowed = (*SECTIONS, APPS)
    problems += [_unknown(name, "", allowed) for name in document if name not in allowed]
    sections = {
        name: _parse_section(name, keys, document.get(name, {}), problems)
        for name, keys in SECTIONS.items()
    }
    apps = _parse_apps(document.get(APPS, []), problems)
    return ParsedPolicy(sections, apps, tuple(problems))


def key_of(section: str, name: str) -> Key:
    """Return a row of the table."""
    return next(key for path, key in keys_of(section) if path == name)


def keys_of(section: str) -> list[tuple[str, Key]]:
    """Return the keys of a section with their paths in it, those of groups as `group.key`."""
    keys: list[tuple[str, Key]] = []
    for entry in SECTIONS[section]:
        if isinstance(entry, Group):
            keys += [(f"{entry.name}.{key.name}", key) for key in entry.keys]
        else:
            keys.append((entry.name, entry))
    return keys


def _decode(text: str, problems: list[str]) -> object:
    """Decode JSON; a duplicate key in an object is a problem, and NaN is invalid."""

    def unique_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
        members: dict[str, object] = {}
        for name, value in pairs:
            if name in members:
                problems.append(f"{_shown(name)} is defined twice")
            members[name] = value
        return members

    def refuse_constant(name: str) -> object:
        raise ValueError(f"{name} is not a number")

    def read_whole(digits: str) -> int:
        if len(digits) > _MAX_DIGITS:
            raise ValueError("a number has too many digits")
        return int(digits)

    decoded: object = json.loads(
        text, object_pairs_hook=unique_pairs, parse_constant=refuse_constant, parse_int=read_whole
    )
    return decoded


def _parse_section(
    name: str, keys: tuple[Key | Group, ...], content: object, problems: list[str]
) -> dict[str, object]:
    values: dict[str, object] = {key.name: key.default for key in keys if isinstance(key, Key)}
    allowed = [key.name for key in keys]
    if not isinstance(content, dict):
        problems.append(f"{name} must be an object, not {kind_of(content)}")
        content = {}
    problems += [_unknown(key, f"{name}.", allowed) for key in content if key not in allowed]
    for key in keys:
        if isinstance(key, Group):
            part = content.get(key.name, {})
            values[key.name] = _parse_section(f"{name}.{key.name}", key.keys, part, problems)
        elif key.name in content:
            problem = key.kind.problem(content[key.name])
            if problem is None:
                values[key.name] = content[key.name]
            else:
                problems.append(f"{name}.{key.name} {problem}")
    return values


def _parse_apps(value: object, problems: list[str]) -> tuple[str, ...]:
    """Check the list of modules; none may have a name that hides one of ours."""
    if not isinstance(value, list):
        problems.append(f"{APPS} must be a list of modules, not {kind_of(value)}")
        return ()
    apps: list[str] = []
    for number, app in enumerate(value, 1):
        problem = _app_problem(app, apps)
        if problem is None:
            apps.append(app)
        else:
            problems.append(f"{APPS}, entry {number}: {problem}")
    return tuple(apps)


def is_reserved(app: str) -> bool:
    """Return whether an app's module would be in a package of the framework."""
    first = app.partition(".")[0]
    return first in RESERVED_APPS or first.startswith(RESERVED_APP_PREFIX)


def _app_problem(app: object, before: list[str]) -> str | None:
    if not isinstance(app, str):
        return f"a module's name must be text, not {kind_of(app)}"
    parts = app.split(".")
    if not all(part.isidentifier() and not keyword.iskeyword(part) for part in parts):
        return f"{_shown(app)} is not the name of a Python module"
    if is_reserved(app):
        return f"{_shown(app)} is reserved for the framework; give the app another name"
    if app in before:
        return f"{_shown(app)} is defined twice"
    return None


def _unknown(name: str, where: str, allowed: Iterable[str]) -> str:
    """Return the sentence about an unknown key, with the nearest known one."""
    near = nearest(name, allowed)
    if near is None:
        homes = {
            key.name: f"{section}.{path}" for section in SECTIONS for path, key in keys_of(section)
        }
        elsewhere = nearest(name, homes)
        near = None if elsewhere is None else homes[elsewhere]
    else:
        near = f"{where}{near}"
    offer = f"did you mean {near}?" if near else f"the keys are {', '.join(allowed)}"
    return f"{where}{_shown(name)[1:-1]} is unknown; {offer}"


def _shown(name: str) -> str:
    """Return a name from outside, cut, and safe to print anywhere."""
    return json.dumps(name[:60])
