"""The command behind `scripts/asvs`: writes the section of docs/security.md anew."""

from __future__ import annotations

from tests.asvs.page import PAGE, section, with_section
from tests.asvs.standard import read_standard

PAGE.write_text(with_section(PAGE.read_text(), section(read_standard())))
