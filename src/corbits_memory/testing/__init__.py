"""Fakes for hosts' own tests."""
