"""The word check of ``make lint``: no banned word in qbench and engines/; ``--open`` counts
those still to replace.

A word may be banned in some folders only, and a file may use one that is another word there. A
line that ends in ``# stored name`` may keep a word that files hold.
"""

import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SUFFIXES = {".py", ".toml", ".j2", ".js", ".css"}
# One word of prose, of snake_case or of camelCase: `SceneOfUnit`, `the_scene` and "the scene" all
# hold "scene".
STORED = "# stored name"
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def words_of(folder: Path) -> Iterator[tuple[str, int, str]]:
    """(file, line, word in lower case) of every word in the files
    and the names of files below ``folder``.
    """
    for path in sorted(folder.rglob("*")):
        if path.suffix not in SUFFIXES:
            continue
        name = str(path.relative_to(folder.parent))
        yield from ((name, 0, word.lower()) for word in WORD.findall(path.stem))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not line.endswith(STORED):
                yield from ((name, number, word.lower()) for word in WORD.findall(line))


def banned_words(file: str, lists: dict[str, Any]) -> dict[str, str]:
    """Word → what to write instead, in ``file``: the words of the whole project,
    and those of its folder.
    """
    banned: dict[str, str] = dict(lists["banned"])
    for folder, words in lists["banned_in"].items():
        if file.startswith(f"{folder}/"):
            banned |= words
    other = lists["another_word_in"].get(file, ())
    return {word: instead for word, instead in banned.items() if word not in other}


def main(arguments: list[str]) -> int:
    """Print the hits, as ``file:line: word: what to write``; 1 if there are any."""
    lists = tomllib.loads((HERE / "words.toml").read_text(encoding="utf-8"))
    root = HERE.parent
    found = [*words_of(root / "qbench"), *words_of(root / "engines" / "qbench_engines")]
    if "--open" in arguments:
        counts = Counter(word for _, _, word in found)
        for word, instead in lists["open"].items():
            print(f"{counts[word]:5} {word}: {instead}")
        return 0
    hits = []
    for file, line, word in found:
        instead = banned_words(file, lists).get(word)
        if instead is not None:
            hits.append(f"{file}:{line}: '{word}': write {instead}")
    folders = len(lists["banned_in"])
    print(
        "\n".join(hits)
        or f"none of {len(lists['banned'])} words is used, nor those of {folders} folders"
    )
    return bool(hits)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
