"""Cutting a quantized graph into what one device counts, in whole numbers, and the rest."""
