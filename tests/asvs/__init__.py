"""The answers to OWASP ASVS as data, docs/asvs.toml, and the section of the page made from it."""
