"""One operator on trial: its levels beside those of an arithmetic, element for element, and what a mistake would be."""
