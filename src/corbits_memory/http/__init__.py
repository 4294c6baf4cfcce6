"""The mountable routes: guard, parse, validate, handle."""
