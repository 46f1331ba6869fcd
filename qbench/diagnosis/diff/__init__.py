"""Any two ways to run one model: whether their outputs differ, by how much, and at which node that begins."""
