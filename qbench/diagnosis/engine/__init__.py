"""An engine compared with the arithmetic that it declares: outputs, units alone, the smallest
input that differs.
"""
