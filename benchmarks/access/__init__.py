"""How fast people are signed in, turned away and served."""
