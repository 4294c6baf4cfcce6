"""What is true: pure functions and value types. No I/O, no clock, no randomness."""
