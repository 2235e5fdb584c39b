"""Bytes, texts and values of every kind against what reads them."""
