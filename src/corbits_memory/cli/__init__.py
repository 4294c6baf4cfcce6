"""One module a command group."""
