"""Supervision: strategies of restarts, the tree that carries them out, and the service's own."""
