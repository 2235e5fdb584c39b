"""Use cases, one transaction each, and the values that go in and come out."""
