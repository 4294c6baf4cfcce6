"""``corbits-memory import``: what lies in files becomes documents, in constant memory."""
