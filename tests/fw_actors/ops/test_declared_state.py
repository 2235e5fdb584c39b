"""Declared state in transactions; `tests/fw_cli/test_declared.py` has the commands (C-168)."""

from __future__ import annotations

import pytest

from fw_actors.errors import ConflictError
from fw_actors.ops.declared_state import DeclaredStates, state_of
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
