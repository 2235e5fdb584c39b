"""The HTTP side: requests in, messages out, and the pages."""
