"""Files of deploy/ contain no password: each comes from a file of the operator."""

from __future__ import annotations

import re
from pathlib import Path

DEPLOY = Path(__file__).parents[2] / "deploy"
GIVEN = re.compile(
    r"(?i)^[^#\n]*\b\w*(?:password|secret|token|_key)\w*\s*[:=]\s*[^\s…,]+", re.MULTILINE
)
PATHS = re.compile(r"ssl_certificate_key /|EnvironmentFile=|LoadCredential=|env_file:")


def test_deployed_files_contain_no_password() -> None:
    files = [path for path in sorted(DEPLOY.rglob("*")) if path.is_file()]
    assert len(files) > 5
    found = [
        (path.name, line)
        for path in files
        for line in GIVEN.findall(path.read_text())
        if not PATHS.search(line)
    ]
    assert found == []
