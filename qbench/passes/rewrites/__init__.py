"""QDQ → QDQ after quantization, one rewrite a file: each states its algebra, its effect, and
declines with a reason.
"""
