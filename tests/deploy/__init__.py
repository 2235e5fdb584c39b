"""The files in deploy/, checked by the programs that read them."""
