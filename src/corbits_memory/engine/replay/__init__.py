"""Replays: a generation that is derived anew from raw captures, beside the live one, until it takes its place."""
