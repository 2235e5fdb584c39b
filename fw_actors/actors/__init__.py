"""The actors of the service. `background` has those that work without a caller; every other one has
a module. Rules and statements are in lower layers.
"""
