"""The rules as plain functions and tables: no I/O, no clock, no SQL."""
