"""Subjects of one operator each, made in code: quantized graphs with levels that lie where machines part ways."""
