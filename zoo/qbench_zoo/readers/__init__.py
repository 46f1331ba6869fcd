"""Readers of foreign weight files that can make nothing but arrays; one format a file."""
