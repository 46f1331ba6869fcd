"""Operators that count in integers, one family a file."""
