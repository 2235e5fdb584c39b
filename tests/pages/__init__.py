"""The generated pages of docs/, from the commands and the OpenAPI document."""
