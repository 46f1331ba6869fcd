"""An engine beside the arithmetic that it claims: whole outputs, units alone, the smallest input that parts them."""
