"""The reference host: tokens, health, console."""
