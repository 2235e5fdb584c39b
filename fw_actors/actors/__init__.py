"""The actors of the service, one per module; rules and statements are in lower layers."""
