"""Codes (quantized values) as passes see them: borders with limits, requantizes, tables of
functions.
"""
