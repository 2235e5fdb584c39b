"""Pages in a real browser: Debian's Chromium, driven by Playwright, against `fw serve`."""
