"""Embedding and reranking clients behind the ports; :mod:`.factory` picks them by configuration."""
