"""The sender, against real sockets on loopback where it has any."""
