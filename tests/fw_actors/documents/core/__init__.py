"""The built-in DocTypes, against the fields that the contract lists."""
