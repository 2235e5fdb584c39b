"""The documentation: its pages are built, its facts held against the code, its commands run."""
