"""The shell scripts, over a stand-in for the environment's Python."""
