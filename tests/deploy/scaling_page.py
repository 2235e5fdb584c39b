"""The configuration of several nodes behind nginx in docs/scaling.md."""

from __future__ import annotations

from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "scaling.md"


def balancer() -> str:
    """Return the configuration of nginx."""
    return _block("upstream fw")


def node_environment() -> dict[str, str]:
    """Return the variables of a node."""
    return dict(line.split("=", 1) for line in _block("FW_BIND=").splitlines())


def _block(contained: str) -> str:
    blocks = PAGE.read_text().split("```")[1::2]
    (block,) = (each for each in blocks if contained in each)
    return block.partition("\n")[2]
