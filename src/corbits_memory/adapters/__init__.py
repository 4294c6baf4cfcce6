"""Other services behind the memory's ports. A host imports the one that it mounts; nothing else does."""
