"""The client of programs, and the receiver of webhooks."""
