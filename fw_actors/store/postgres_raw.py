"""Reads the SQL of an app: `:name` becomes psycopg's parameter, and what ends transactions stops.

PostgreSQL has no authorizer, so the statement's first word is looked at, and that it is one
statement. Literals, quoted names and comments are skipped as the server skips them.
"""

from __future__ import annotations

import re
from typing import Final

from fw_actors.errors import ValidationError

_TOKEN: Final = re.compile(
    r"""
      (?P<skipped> '(?:[^']|'')*'                     # standard_conforming_strings is on
        | --[^\n]* | /\*.*?\*/
        | \$(?P<tag>(?:[A-Za-z_\x80-\U0010ffff][\w]*)?)\$.*?\$(?P=tag)\$
        | :: | := | \s+ )
    | (?P<escaped> [eE]'(?:[^'\\]|\\.|'')*' )
    | "(?P<quoted>(?:[^"]|"")*)"
    | : (?P<name>[A-Za-z_]\w*)
    | (?P<word> [A-Za-z_\x80-\U0010ffff][\w$]* )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_ALLOWED: Final = frozenset(
    [
        *("SELECT", "VALUES", "TABLE", "WITH", "INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE"),
        *("CREATE", "ALTER", "DROP", "COMMENT", "GRANT", "REVOKE", "REINDEX", "REFRESH"),
        *("ANALYZE", "EXPLAIN", "LOCK", "SHOW"),
    ]
)
_REFUSED_FUNCTIONS: Final = frozenset(  # what they do outlives the transaction
    [
        "set_config",
        "pg_advisory_lock",
        "pg_advisory_lock_shared",
        "pg_try_advisory_lock",
        "pg_try_advisory_lock_shared",
    ]
)


def read_raw(text: str) -> bytes:
    """Return the statement as psycopg takes it, with `%(name)s` for each `:name`.

    Raises: ValidationError for more than one statement, and for one that would reach beyond the
        transaction: BEGIN, COMMIT, SAVEPOINT, SET, LISTEN, DO, COPY and their like.
    """
    parts: list[str] = []
    first = ""
    ended = False
    for token in _TOKEN.finditer(text):
        kind, piece = token.lastgroup, token[0]
        if kind == "tag":
            kind = "skipped"
        if ended and kind != "skipped" and piece != ";":
            raise ValidationError("fw.db.sql runs one statement at a time.")
        if kind == "name":
            parts.append(f"%({token['name']})s")
            continue
        parts.append(piece.replace("%", "%%"))
        if kind in ("word", "quoted"):
            _refuse_function(token["word"] or token["quoted"])
        if not first and kind != "skipped" and piece != "(":
            first = piece.upper()
        ended = ended or piece == ";"
    if first not in _ALLOWED:
        raise ValidationError(f"fw.db.sql runs no {first[:20] or 'empty'} statement.")
    try:
        return "".join(parts).encode()
    except UnicodeEncodeError:
        raise ValidationError("The SQL holds half a character.") from None


def _refuse_function(name: str) -> None:
    if name.lower() in _REFUSED_FUNCTIONS:
        raise ValidationError(f"fw.db.sql does not run {name}: it outlives the transaction.")
