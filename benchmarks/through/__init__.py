"""Events from their emission to their recorded outcome, through the service as users start it."""
