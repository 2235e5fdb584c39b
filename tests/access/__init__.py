"""Area A over HTTP in memory: every layer but the sockets, in virtual time."""
