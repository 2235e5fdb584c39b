"""Sign-ins, refusals and requests per second."""
