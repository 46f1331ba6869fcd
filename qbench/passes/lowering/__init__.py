"""From QDQ to operators that count in integers; the reverse is in ``passes.qdq``."""
