"""The rules, each against the rows of the contract."""
