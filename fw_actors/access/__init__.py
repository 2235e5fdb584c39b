"""Access: sign-in, sessions, accounts, links, recovery, API keys."""
