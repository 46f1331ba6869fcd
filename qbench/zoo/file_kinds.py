"""What a file of a given name holds, in Magika's words: made by hand from names alone, never from an answer.

The last ending decides. A template in the Jinja language is a template of something: for ``page.html.j2`` right are
what ``page.html`` is, ``jinja``, and ``twig``, which has the same syntax. ``.txt`` is not listed: it says of no file
what it holds (requirements, stop words, reStructuredText).
"""

from collections.abc import Mapping
from types import MappingProxyType

ENDINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        ".bat": ("batch",),
        ".bmp": ("bmp",),
        ".bz2": ("bzip",),
        ".c": ("c",),
        ".cfg": ("ini",),
        ".cls": ("latex",),
        ".cmake": ("cmake",),
        ".cpp": ("cpp",),
        ".cs": ("cs",),
        ".css": ("css",),
        ".csv": ("csv",),
        ".dcm": ("dicom",),
        ".docx": ("docx",),
        ".emf": ("emf",),
        ".exe": ("pebin",),
        ".gif": ("gif",),
        ".gz": ("gzip",),
        ".h": ("c", "cpp"),
        ".html": ("html",),
        ".ico": ("ico",),
        ".ini": ("ini",),
        ".ipynb": ("ipynb",),
        ".jpeg": ("jpeg",),
        ".jpg": ("jpeg",),
        ".js": ("javascript",),
        ".json": ("json",),
        ".map": ("json",),
        ".md": ("markdown",),
        ".mp3": ("mp3",),
        ".odt": ("odt",),
        ".ogg": ("ogg",),
        ".otf": ("otf",),
        ".pdf": ("pdf",),
        ".png": ("png",),
        ".po": ("po",),
        ".pot": ("po",),
        ".pptx": ("pptx",),
        ".proto": ("proto",),
        ".ps1": ("powershell",),
        ".psm1": ("powershell",),
        ".py": ("python",),
        ".pyi": ("python",),
        ".rst": ("rst",),
        ".scss": ("scss",),
        ".sh": ("shell",),
        ".so": ("elf",),
        ".sty": ("latex",),
        ".svg": ("svg",),
        ".tex": ("latex",),
        ".toml": ("toml",),
        ".ttf": ("ttf",),
        ".woff": ("woff",),
        ".woff2": ("woff2",),
        ".xml": ("xml",),
        ".xsd": ("xml",),
        ".xsl": ("xml",),
        ".yaml": ("yaml",),
        ".yml": ("yaml",),
    }
)

NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"CMakeLists.txt": ("cmake",), "Dockerfile": ("dockerfile",), "Makefile": ("makefile",)}
)

TEMPLATE_ENDINGS = (".j2", ".jinja")
TEMPLATE_FOLDERS = ("layouts", "templates", "themes")
"""Where the wheels keep pages and texts that are templates too, whatever they end with."""

_TEMPLATE = ("jinja", "twig")
_TEMPLATED_THERE = (".html", ".rst", ".xml")


def content_types(path: str) -> tuple[str, ...]:
    """The content types that are right for a file at ``path``; none where its name does not tell."""
    folder, _, name = path.rpartition("/")
    for ending in TEMPLATE_ENDINGS:
        if name.endswith(ending):
            return (*content_types(name.removesuffix(ending)), *_TEMPLATE)
    found = NAMES.get(name) or ENDINGS.get(name[name.rfind(".") :], ())
    if name.endswith(_TEMPLATED_THERE) and not set(TEMPLATE_FOLDERS).isdisjoint(folder.split("/")):
        return (*found, *_TEMPLATE)
    return found
