"""Outside brains: embedding and reranking clients, and the local model."""
