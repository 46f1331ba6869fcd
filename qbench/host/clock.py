"""The one place that reads a clock; everything else is handed a time."""

import datetime


def utc_now() -> datetime.datetime:
    """Now, in UTC."""
    return datetime.datetime.now(datetime.UTC)


def utc_today() -> datetime.date:
    """Today's date in UTC: what expiry dates are compared with."""
    return utc_now().date()
