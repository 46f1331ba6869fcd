"""What of a text is heard: small letters, digits and inner apostrophes, whose words are compared.

    "Press 'One' to re-enter your party's number." → press 1 to reenter your party's number

A hyphen inside a word is left out, any other sign parts words, and the words zero to nine become digits: who listens
cannot know how they are written. Everything else stays as it is written.
"""

import re

_DIGITS = {
    word: str(digit)
    for digit, word in enumerate(("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"))
}
_JOINED = re.compile(r"(?<=\w)-(?=\w)")
_BETWEEN = re.compile(r"[^\w']+|_")


def plain_words(text: str) -> str:
    """The words of ``text``, one space between them."""
    heard = _JOINED.sub("", text.lower().replace("’", "'"))
    words = (word.strip("'") for word in _BETWEEN.split(heard))
    return " ".join(_DIGITS.get(word, word) for word in words if word)
