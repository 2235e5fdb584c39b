"""Numbers with their unit, in the singular or the plural."""


def counted(number: int, unit: str) -> str:
    """Return a number with its unit, in the plural unless it is one: `1 attempt`, `1,000 days`."""
    return f"{number:,} {unit}{'' if number == 1 else 's'}"
