"""Values on disk: TOML and JSON ↔ frozen values, digests, atomic writes, a content-addressed cache."""

from qbench.storage.archives import ArchiveError, TooLargeError, array_names, inflate, read_archive
from qbench.storage.atomic import require_writable, staged_files, sync_folder, write_bytes, write_text
from qbench.storage.cache import Cache, work_folder
from qbench.storage.serialize import (
    Plain,
    json_line,
    json_text,
    plain,
    read_json,
    read_toml,
    table_from_value,
    toml_text,
    value_from_table,
    value_of_plain,
)
from qbench.storage.size_limits import (
    LimitName,
    current_factor,
    current_limits,
    factor_admitting,
    limits_times,
    too_large,
)
from qbench.storage.source_digest import digest_arrays, digest_bytes, digest_code, digest_file, digest_plain
from qbench.storage.written_text import csv_text, neutral_json, neutral_line, neutral_text, visible

__all__ = [
    "ArchiveError",
    "Cache",
    "LimitName",
    "Plain",
    "TooLargeError",
    "array_names",
    "csv_text",
    "current_factor",
    "current_limits",
    "digest_arrays",
    "digest_bytes",
    "digest_code",
    "digest_file",
    "digest_plain",
    "factor_admitting",
    "inflate",
    "json_line",
    "json_text",
    "limits_times",
    "neutral_json",
    "neutral_line",
    "neutral_text",
    "plain",
    "read_archive",
    "read_json",
    "read_toml",
    "require_writable",
    "staged_files",
    "sync_folder",
    "table_from_value",
    "toml_text",
    "too_large",
    "value_from_table",
    "value_of_plain",
    "visible",
    "work_folder",
    "write_bytes",
    "write_text",
]
