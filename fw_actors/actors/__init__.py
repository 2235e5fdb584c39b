"""The actors of the service. `background` contains four small ones; every other actor has a module.
Rules and statements are in lower layers.
"""
