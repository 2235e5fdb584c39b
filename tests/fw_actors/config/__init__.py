"""The configuration, from files in a folder and a made-up environment."""
