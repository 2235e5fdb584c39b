"""Pages for browsers: HTML from templates; scripts change data through the JSON API."""
