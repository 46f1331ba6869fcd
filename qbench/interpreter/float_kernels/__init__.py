"""Operators that have no integer form, between a visible dequantize and quantize."""
