"""The verb ``search``: one service, two profiles."""
