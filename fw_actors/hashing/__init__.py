"""Password hashing with argon2, the only code that uses it."""

from fw_actors.hashing.hasher import (
    Hasher,
    HasherStatistics,
    HashQueue,
    PasswordCheck,
    PreparedPassword,
    cost_of,
    too_many,
)

__all__ = [
    "HashQueue",
    "Hasher",
    "HasherStatistics",
    "PasswordCheck",
    "PreparedPassword",
    "cost_of",
    "too_many",
]
