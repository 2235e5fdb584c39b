"""A browser's User-Agent in a few words, as a list of sessions shows it. Pure."""

from __future__ import annotations

from typing import Final

# The first that is found counts: most browsers name others whose likeness they claim.
BROWSERS: Final = (
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("Chromium/", "Chromium"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
)
SYSTEMS: Final = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)
LONGEST: Final = 60


def shown_agent(text: str) -> str:
    """Return `Firefox on Linux`; what is no browser in its own words, cut to 60 characters."""
    browser = next((name for mark, name in BROWSERS if mark in text), "")
    system = next((name for mark, name in SYSTEMS if mark in text), "")
    if browser:
        return f"{browser} on {system}" if system else browser
    return text[:LONGEST] or "Unknown program"
