"""The view of others: official libraries verify the requests of the service."""
