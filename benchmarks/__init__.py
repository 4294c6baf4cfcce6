"""What the product finds, how fast, and in how much memory: ``python -m benchmarks --help``."""
