"""Use cases, each in real transactions on a site in virtual time."""
