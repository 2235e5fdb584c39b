"""Whether version, changelog and tags agree, and how a release is prepared."""
