"""What a telephone system says, with the words: prompts of asterisk's English voice and their
transcripts.

Of the prompts that are recorded and transcribed in at least four words and take at most 10 s, p₀ …
p₍ₘ₋₁₎ in the order of the transcripts: p at ⌊i·m/110⌋, i < 110, are scored; of the others q₀ …
q₍ₖ₋₁₎ those at ⌊i·k/32⌋, i < 32, calibrate. A transcript that describes sounds, in brackets, or
names a sign (* or #) is none of what is said. A label is the plain words of the transcript.

    name: transcript        a line a prompt; a line that begins with a semicolon is a comment
"""

import functools
import gzip
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qbench.metrics import points_of
from qbench.storage import digest_plain
from qbench.subjects import Dataset, fetch_package, open_member
from qbench_zoo.packages import SPEECH_TRANSCRIPTS, VOICES
from qbench_zoo.spectrograms import RECORDING
from qbench_zoo.voices import HEADER, read_recording

# What of a text is heard: small letters, digits and inner apostrophes, whose words are compared.
#
#     "Press 'One' to re-enter your party's number." → press 1 to reenter your party's number
#
# A hyphen inside a word is left out, any other sign parts words, and the words zero to nine become
# digits: who listens cannot know how they are written. Everything else stays as it is written.

_DIGITS = {
    word: str(digit)
    for digit, word in enumerate(
        ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    )
}
_JOINED = re.compile(r"(?<=\w)-(?=\w)")
_BETWEEN = re.compile(r"[^\w']+|_")


def plain_words(text: str) -> str:
    """The words of ``text``, one space between them."""
    heard = _JOINED.sub("", text.lower().replace("’", "'"))
    words = (word.strip("'") for word in _BETWEEN.split(heard))
    return " ".join(_DIGITS.get(word, word) for word in words if word)


SCORED, CALIBRATION = 110, 32
_VOICE = VOICES[0]
_FOLDER = "usr/share/asterisk/sounds/"
_SPEAKER = "en_US_f_Allison"
_TRANSCRIPTS = "usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz"
_FEWEST_WORDS, _LONGEST_BYTES = 4, HEADER + 10 * 8000 * 2


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: its name, and what is said."""

    name: str
    words: str


def speech_prompts() -> Dataset:
    """110 prompts."""
    return _dataset("speech_prompts", scored_prompts())


def speech_prompts_calibration() -> Dataset:
    """32 others."""
    scored = set(scored_prompts())
    return _dataset(
        "speech_prompts_calibration", _apart([p for p in prompts() if p not in scored], CALIBRATION)
    )


def scored_prompts() -> tuple[Prompt, ...]:
    """Those that are scored."""
    return _apart(prompts(), SCORED)


@functools.cache
def prompts() -> tuple[Prompt, ...]:
    """All that can be chosen."""
    with zipfile.ZipFile(fetch_package(_VOICE)) as archive:
        sizes = {member.filename: member.file_size for member in archive.infolist()}
    return tuple(
        p
        for p in read_transcripts(_transcripts())
        if HEADER < sizes.get(_path(p.name), 0) <= _LONGEST_BYTES
    )


def read_transcripts(text: str) -> Iterator[Prompt]:
    """The prompts in ``text`` whose words are known and enough."""
    for name, said in _lines(text):
        yield Prompt(name, plain_words(said))


def spoken_texts() -> dict[str, str]:
    """Of each prompt what is said, as it is written, one space between words."""
    known = {prompt.name for prompt in prompts()}
    return {name: " ".join(said.split()) for name, said in _lines(_transcripts()) if name in known}


def _lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, colon, said = line.partition(":")
        if not colon or line.startswith(";") or set(said) & set("([*#"):
            continue
        if len(said.split()) >= _FEWEST_WORDS:
            yield name.strip(), said


def _transcripts() -> str:
    return gzip.decompress(open_member(SPEECH_TRANSCRIPTS, _TRANSCRIPTS)).decode("utf-8")


def _apart(entries: tuple[Prompt, ...] | list[Prompt], count: int) -> tuple[Prompt, ...]:
    return tuple(entries[i * len(entries) // count] for i in range(count))


def _path(name: str) -> str:
    return f"{_FOLDER}{_SPEAKER}/{name}.wav"


def _dataset(name: str, chosen: tuple[Prompt, ...]) -> Dataset:
    return Dataset(
        id=name,
        kind=RECORDING,
        sample_ids=tuple(prompt.name for prompt in chosen),
        sources=tuple(f"{_SPEAKER}/{prompt.name}" for prompt in chosen),
        labels=tuple(points_of(prompt.words) for prompt in chosen),
        content=digest_plain([_VOICE.sha256, SPEECH_TRANSCRIPTS.sha256]),
        load=lambda index: _recording(chosen[index].name),
    )


def _recording(name: str) -> npt.NDArray[np.int16]:
    with zipfile.ZipFile(_archive()) as archive:
        return read_recording(archive.read(_path(name)), _path(name))


@functools.cache
def _archive() -> str:
    """Where it lies, verified once: 18 MB are not to be digested anew for every prompt."""
    return str(fetch_package(_VOICE))
