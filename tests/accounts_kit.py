"""Shortcuts for tests of a site: transactions, rows and users."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from fw_actors.access.users import add_user
from fw_actors.ops.site import Site

T = TypeVar("T")
PASSWORD = "correct horse battery staple"


@dataclass
class SiteWithAccounts:
    """A site with accounts, for tests of access."""

    site: Site
    domain: ClassVar[str] = "example.test"

    async def do(self, fn: Callable[[Any], T], user: str = "Administrator") -> T:
        """Run `fn` in a transaction of its own."""
        return await self.site.write(user, fn)

    async def rows(self, text: str, **params: object) -> list[dict[str, Any]]:
        """Run SQL; the rows as dicts."""
        return await self.do(lambda fw: fw.db.sql(text, params))

    async def add_account(
        self, name: str, *roles: str, password: str | None = PASSWORD, email: str = ""
    ) -> str:
        """Make an account; its name."""
        email = email or f"{name}@{self.domain}"
        hashed = await self.site.hash_password(password, name, email) if password else None
        await self.do(lambda fw: add_user(fw, name, email, name.title(), roles, hashed))
        return name
