"""Apps as an author writes them; the folder is the site of tests, so it is on sys.path."""
