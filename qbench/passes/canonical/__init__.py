"""Float → float: one pass a file."""
