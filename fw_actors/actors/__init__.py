"""The actors of the service: thin, one file each; rules and statements lie below."""
