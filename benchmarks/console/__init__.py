"""What it costs to look at the service through its console."""
