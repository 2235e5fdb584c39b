"""Random runs of scripted actors, and the sequential model that checks them."""
