"""What stands in deploy/: checked by the programs that read it."""
