"""Delivering webhooks, from rows in the store to outcomes in the store."""
