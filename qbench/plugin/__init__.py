"""pytest door."""
