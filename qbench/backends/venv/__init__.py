"""Another Python: the backend that runs in one, its worker, and who makes environments."""
