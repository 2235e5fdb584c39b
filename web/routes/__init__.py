"""The routes: which operation each path serves, one module per family."""
