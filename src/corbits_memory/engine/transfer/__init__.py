"""A tenant as lines of JSON, and back."""
