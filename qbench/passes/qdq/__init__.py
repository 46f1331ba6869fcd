"""Between the forms of a quantized graph, upwards: from integer operators to QDQ, from Q/DQ
pairs to pinned values.
"""
