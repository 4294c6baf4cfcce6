"""Who may: tags and ownership."""
