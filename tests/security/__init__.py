"""What must not happen, tried from outside: real processes, a real proxy, the logs afterwards."""
