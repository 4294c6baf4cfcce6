"""``corbits-memory transform``: derive the corpus anew, look at it, put it in the place of the live one."""
