"""The built-in DocTypes, against the fields that the specification lists."""
