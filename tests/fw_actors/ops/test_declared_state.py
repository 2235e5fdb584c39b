"""Declared state in transactions; `tests/fw_cli/test_declared.py` has the commands (C-168)."""

from __future__ import annotations

from typing import Any

import pytest

from fw_actors.documents import query
from fw_actors.documents.handle import Fw
from fw_actors.errors import ConfigurationError, ConflictError
from fw_actors.ops.declared_state import DeclaredState, DeclaredStates, state_of
from tests.fw_actors.virtual_site_kit import VirtualSite


async def test_declared_state_is_applied_only_as_it_was_shown(site: VirtualSite) -> None:
    """Somebody may change the site while the plan is read and confirmed."""
    states, state = DeclaredStates(lambda name: None), state_of({"roles": ["Clerk", "Cook"]})
    plan = await site.do(lambda fw: states.plan(fw, state))
    await site.do(lambda fw: fw.new_doc("Role", name="Cook").insert())
    with pytest.raises(ConflictError, match="changed since the plan was shown"):
        await site.do(lambda fw: states.apply(fw, state, plan))
    assert await site.do(lambda fw: fw.exists("Role", "Clerk")) is None
    plan = await site.do(lambda fw: states.plan(fw, state))
    await site.do(lambda fw: states.apply(fw, state, plan))
    assert await site.do(lambda fw: fw.exists("Role", "Clerk")) == "Clerk"


async def test_declared_state_reads_only_roles_that_it_names(
    site: VirtualSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site may have more roles than fit into memory; the nearest is sought only for a refusal."""
    await site.do(lambda fw: fw.new_doc("Role", name="Cook").insert())
    lists: list[int] = []
    rows = query.Lists.rows

    def listed(
        self: query.Lists, fw: Fw, doctype: str, *args: Any, **options: Any
    ) -> list[dict[str, Any]]:
        found = rows(self, fw, doctype, *args, **options)
        if doctype == "Role":
            lists.append(len(found))
        return found

    monkeypatch.setattr(query, "WALK_ROWS", 2)
    monkeypatch.setattr(query.Lists, "rows", listed)
    states = DeclaredStates(lambda name: None)

    def state(role: str) -> DeclaredState:
        ann = {"email": "ann@x.test", "roles": [role, "Clerk"]}
        return state_of({"roles": ["Clerk"], "users": {"ann": ann}})

    await site.do(lambda fw: states.plan(fw, state("Cook")))
    assert set(lists) <= {0, 1}  # look-ups of one name
    with pytest.raises(ConfigurationError, match=r"no Role Coock; did you mean Cook\?"):
        await site.do(lambda fw: states.plan(fw, state("Coock")))
    assert max(lists) == 2
