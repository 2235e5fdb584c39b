"""Tests of the front end: the application in memory, the server on sockets."""
