"""Random plays of actors, and the sequential model that checks them."""
