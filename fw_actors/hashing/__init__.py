"""Password hashing with argon2, and the hashes that imported accounts bring."""

from fw_actors.hashing.hasher import (
    HashCost,
    Hasher,
    HasherStatistics,
    HashQueue,
    PasswordCheck,
    PreparedPassword,
    cost_of,
    too_many,
    usable_hash,
)
from fw_actors.hashing.imported import ImportedCost, UnusableHashError, cost_from

__all__ = [
    "HashCost",
    "HashQueue",
    "Hasher",
    "HasherStatistics",
    "ImportedCost",
    "PasswordCheck",
    "PreparedPassword",
    "UnusableHashError",
    "cost_from",
    "cost_of",
    "too_many",
    "usable_hash",
]
