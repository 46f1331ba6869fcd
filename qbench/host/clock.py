"""The one place that reads a clock; everything else is handed a time."""

import datetime


def utc_now() -> str:
    """Now in UTC, ISO 8601 to the second: ``2026-01-31T23:59:59Z``."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def utc_today() -> datetime.date:
    """Today's date in UTC: what expiry dates are compared with."""
    return datetime.datetime.now(datetime.UTC).date()
