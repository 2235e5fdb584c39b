"""What one PostgreSQL carries, and what many nodes on it would do."""
