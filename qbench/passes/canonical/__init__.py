"""Float → float: one pass per file."""
