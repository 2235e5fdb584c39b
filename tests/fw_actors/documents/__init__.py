"""Documents, each module against the interface it carries out."""
