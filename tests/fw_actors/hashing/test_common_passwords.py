"""The list of common passwords; ASVS 6.2.4."""

from __future__ import annotations

import pytest

from fw_actors.config import Argon2
from fw_actors.errors import PasswordPolicyError
from fw_actors.hashing import Hasher
from fw_actors.hashing.hasher import common_passwords
from fw_actors.runtime import SeededEntropy


def test_common_passwords_are_ten_thousand_casefolded_words() -> None:
    common = common_passwords()
    assert len(common) == 10_000
    assert all(len(one) >= 8 and one == one.casefold() == one.strip() for one in common)


@pytest.mark.parametrize(
    "password", ["password", "12345678", "qwertyuiop", "Password1", "TRUSTNO1", "iloveyou"]
)
async def test_hasher_refuses_common_passwords_if_configured(password: str) -> None:
    """The policy is applied where hashing happens (A-130, A-135, C-29)."""
    cheap, entropy = Argon2(64, 1, 1), SeededEntropy(1)
    strict = Hasher(cheap, 8, entropy, refuse_common=True, inline=True)
    with pytest.raises(PasswordPolicyError) as outside:
        await strict.hash(password, name="ada", email="ada@x.test")
    with pytest.raises(PasswordPolicyError) as inside:
        strict.hash_now(password, name="ada", email="ada@x.test")
    assert outside.value.extra == inside.value.extra == {"rule": "common"}
    assert await strict.hash("no rule of composition", name="ada", email="ada@x.test")
    assert await Hasher(cheap, 8, entropy, inline=True).hash(password, name="ada", email="")
