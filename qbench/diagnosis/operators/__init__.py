"""One operator under test: its quantized values compared with those of an arithmetic, element
by element.
"""
