"""The templates of the pages."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

PAGES: Final = Path(__file__).parents[3] / "web" / "pages"
TEMPLATES: Final = sorted((PAGES / "templates").glob("*.html"))


@pytest.mark.parametrize("template", [each.name for each in TEMPLATES])
def test_template_is_named_by_a_module_or_another_template(template: str) -> None:
    """One that is named by none is a page that nobody can open."""
    sources = [*PAGES.parent.rglob("*.py"), *(each for each in TEMPLATES if each.name != template)]
    assert any(f'"{template}"' in source.read_text() for source in sources)
