"""Outgoing webhooks: subscriptions, events, deliveries, replay."""
