"""Documents, each module against the rules it carries out."""
