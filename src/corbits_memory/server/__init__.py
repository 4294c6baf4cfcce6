"""The reference host: tokens, health, metrics and docs around the mounted memory."""
