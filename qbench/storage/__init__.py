"""Values on disk: TOML and JSON ↔ frozen values, digests, atomic writes, a content-addressed
cache.
"""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.storage.archives import ArchiveError as ArchiveError
    from qbench.storage.archives import TooLargeError as TooLargeError
    from qbench.storage.archives import array_names as array_names
    from qbench.storage.archives import inflate as inflate
    from qbench.storage.archives import read_archive as read_archive
    from qbench.storage.archives import read_array as read_array
    from qbench.storage.atomic import FileChange as FileChange
    from qbench.storage.atomic import changing_file as changing_file
    from qbench.storage.atomic import require_writable as require_writable
    from qbench.storage.atomic import staged_files as staged_files
    from qbench.storage.atomic import sync_folder as sync_folder
    from qbench.storage.atomic import write_bytes as write_bytes
    from qbench.storage.atomic import write_text as write_text
    from qbench.storage.atomic import writing_pages as writing_pages
    from qbench.storage.cache import Cache as Cache
    from qbench.storage.cache import sweep_work_folder as sweep_work_folder
    from qbench.storage.cache import user_folder as user_folder
    from qbench.storage.cache import work_folder as work_folder
    from qbench.storage.conflicts import conflict_error as conflict_error
    from qbench.storage.conflicts import has_conflict as has_conflict
    from qbench.storage.conflicts import refuse_newer as refuse_newer
    from qbench.storage.conflicts import require_format as require_format
    from qbench.storage.conflicts import sides_of_markers as sides_of_markers
    from qbench.storage.held_code import FollowedCode as FollowedCode
    from qbench.storage.held_code import digest_code as digest_code
    from qbench.storage.held_code import followed_code as followed_code
    from qbench.storage.hidden_secrets import without_secrets as without_secrets
    from qbench.storage.line_files import append_line as append_line
    from qbench.storage.line_files import object_of_line as object_of_line
    from qbench.storage.listing import paths_below as paths_below
    from qbench.storage.places import ObjectFacts as ObjectFacts
    from qbench.storage.places import ObjectFile as ObjectFile
    from qbench.storage.places import ObjectFolder as ObjectFolder
    from qbench.storage.places import OtherContentError as OtherContentError
    from qbench.storage.places import PlaceError as PlaceError
    from qbench.storage.places import file_at as file_at
    from qbench.storage.places import is_url as is_url
    from qbench.storage.places import place_of as place_of
    from qbench.storage.previews import PREVIEWS as PREVIEWS
    from qbench.storage.previews import Preview as Preview
    from qbench.storage.previews import has_preview as has_preview
    from qbench.storage.previews import keep_preview as keep_preview
    from qbench.storage.previews import read_preview as read_preview
    from qbench.storage.sample_limits import MOST_LINE_BYTES as MOST_LINE_BYTES
    from qbench.storage.sample_limits import MOST_LISTED as MOST_LISTED
    from qbench.storage.sample_limits import MOST_ON_PAGE as MOST_ON_PAGE
    from qbench.storage.sample_limits import MOST_PAGES as MOST_PAGES
    from qbench.storage.sample_limits import MOST_PREVIEW_BYTES as MOST_PREVIEW_BYTES
    from qbench.storage.sample_limits import MOST_PREVIEWS as MOST_PREVIEWS
    from qbench.storage.sample_limits import MOST_RUNS as MOST_RUNS
    from qbench.storage.sample_limits import MOST_SAMPLES as MOST_SAMPLES
    from qbench.storage.sample_limits import MOST_TEXT as MOST_TEXT
    from qbench.storage.sample_limits import PREVIEW_SIDE as PREVIEW_SIDE
    from qbench.storage.seals import tells_damage as tells_damage
    from qbench.storage.serialize import FORMER_NAME as FORMER_NAME
    from qbench.storage.serialize import KEYS as KEYS
    from qbench.storage.serialize import NOT_WRITTEN as NOT_WRITTEN
    from qbench.storage.serialize import Plain as Plain
    from qbench.storage.serialize import json_line as json_line
    from qbench.storage.serialize import json_text as json_text
    from qbench.storage.serialize import plain as plain
    from qbench.storage.serialize import read_json as read_json
    from qbench.storage.serialize import read_project as read_project
    from qbench.storage.serialize import read_toml as read_toml
    from qbench.storage.serialize import table_from_value as table_from_value
    from qbench.storage.serialize import text_toml as text_toml
    from qbench.storage.serialize import toml_text as toml_text
    from qbench.storage.serialize import value_from_table as value_from_table
    from qbench.storage.serialize import value_of_plain as value_of_plain
    from qbench.storage.serialize import value_of_type as value_of_type
    from qbench.storage.size_limits import LimitName as LimitName
    from qbench.storage.size_limits import current_factor as current_factor
    from qbench.storage.size_limits import current_limits as current_limits
    from qbench.storage.size_limits import factor_admitting as factor_admitting
    from qbench.storage.size_limits import limits_times as limits_times
    from qbench.storage.size_limits import too_large as too_large
    from qbench.storage.source_digest import digest_arrays as digest_arrays
    from qbench.storage.source_digest import digest_bytes as digest_bytes
    from qbench.storage.source_digest import digest_file as digest_file
    from qbench.storage.source_digest import digest_plain as digest_plain
    from qbench.storage.written_text import csv_text as csv_text
    from qbench.storage.written_text import neutral_json as neutral_json
    from qbench.storage.written_text import neutral_line as neutral_line
    from qbench.storage.written_text import neutral_text as neutral_text
    from qbench.storage.written_text import visible as visible
else:
    __getattr__, __dir__, __all__ = open_on_use(__name__, __file__)
