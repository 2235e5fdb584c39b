"""The access-control and outgoing-webhooks service: its actors, rules, documents and store."""
