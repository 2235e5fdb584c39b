"""The apps that are shown as examples."""
