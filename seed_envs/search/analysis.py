"""Lucene's English analysis: text to the terms that its BM25 counts.

Standard tokenizer, English possessive, lower case, stop words, Porter stemmer, in that order.
Unicode properties come from ``regex``, the stemmer from ``snowballstemmer``.

Source: Lucene's ``EnglishAnalyzer`` (the default of Anserini and pyserini); word boundaries of
Unicode Standard Annex 29. Differences are listed in docs/search.md.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import regex
from snowballstemmer.porter_stemmer import PorterStemmer

ANALYZER = "english-1"
"""Name and version; an index made by another is refused."""

STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they "
    "this to was will with".split()
)

MAX_TOKEN_CHARS = 255
"""Longer tokens are split; counted in UTF-16 units, as Lucene counts."""

LONGEST_WORD = 1 << 18
"""Characters without a blank that are looked at together."""

CACHED_TERMS = 1 << 17


def analyze(text: str) -> list[str]:
    """Return the terms of ``text`` in order, with repeats; no text is refused."""
    return [term for token in tokenize(text) if (term := to_term(token))]


def tokenize(text: str) -> list[str]:
    """Return the tokens of ``text`` as they stand in it, at most 255 UTF-16 units each.

    The result may hold tokens of ``_`` alone, which ``to_term`` drops.
    """
    if text.isascii():
        return _ascii_tokens(text)
    # No token holds a blank, and most words of most texts are ASCII.
    return [
        token for word in text.split(" ") for token in (_ascii_tokens(word) if word.isascii() else _any_tokens(word))
    ]


def _ascii_tokens(text: str) -> list[str]:
    tokens = _ASCII_TOKEN.findall(text)
    if len(text) <= MAX_TOKEN_CHARS or all(len(token) <= MAX_TOKEN_CHARS for token in tokens):
        return tokens
    return _any_tokens(text)


def _any_tokens(text: str) -> list[str]:
    found = (match for piece in _pieces(text) for match in _TOKEN.finditer(text, *piece) if match.lastgroup)
    return [token for match in found for token in _split(text, match.start(), match.end())]


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of parts that ``regex`` can match: it runs out of memory in words of millions."""
    start = 0
    while start < len(text):
        end = min(start + LONGEST_WORD, len(text))
        if end < len(text) and (blank := text.rfind(" ", start, end)) > start:
            end = blank
        yield start, end
        start = end


@lru_cache(CACHED_TERMS)
def to_term(token: str) -> str:
    """Return the term that a token stands for, or ``""`` for a stop word."""
    if token[-2:-1] in _APOSTROPHES and token[-1:] in ("s", "S"):
        token = token[:-2]
    word = token.lower() if token.isascii() else "".join(map(_lower, token))
    return "" if word in STOP_WORDS or not word.strip("_") else _stem(word)


_APOSTROPHES = ("'", "\u2019", "\uff07")


def _lower(char: str) -> str:
    """Lower one character as Java does: without looking at its neighbours, to one character."""
    low = char.lower()
    return low if len(low) == 1 else low[0]


# --- tokens -----------------------------------------------------------------------------------------------------------

_ASCII_TOKEN = re.compile(
    r"\w+(?:(?:(?<=[a-z])[.:'](?=[a-z])|(?<=[0-9])[.,;'](?=[0-9]))\w+)*+", re.ASCII | re.IGNORECASE
)
"""What ``_TOKEN`` finds in ASCII text, and faster."""


# The tokenizer follows an older Unicode than ``regex`` does. These were no letters or digits in it ...
_NEWER = (
    "B8 2E5-2EB 558 55A 58A-58C 600-605 6DD 70F 870-887 889-891 8B5 8BE-8C9 8E2 C5C-C5D CDC-CDD D04 ECE 170D 171F "
    "1B4C 1C89-1C8A 208F 209D-209F 2C2F 2C5F 31BB-31BF 4DB6-4DBF 9FF0-9FFF A708-A716 A7C0-A7C1 A7C7-A7DD A7E2 "
    "A7F1-A7F6 AB68-AB69 AB6C-AB6D 10570-1057A 1057C-1058A 1058C-10592 10594-10595 10597-105A1 105A3-105B1 "
    "105B3-105B9 105BB-105BC 105C0-105F3 10780-10785 10787-107B0 107B2-107BF 10940-10959 10D40-10D65 10D6F-10D85 "
    "10E80-10EA9 10EB0-10EB1 10EC2-10EC7 10ED9-10EEE 10F70-10F81 10FB0-10FC4 11071-11072 11075 110BD 110CD 11147 "
    "1123F-11240 11380-11389 1138B 1138E 11390-113B5 113B7 113D1 113D3 11460-11461 116D0-116E3 11740-11746 "
    "11900-11906 11909 1190C-11913 11915-11916 11918-1192F 1193F 11941 11950-11959 11AB0-11ABF 11B0A 11BC0-11BE0 "
    "11BF0-11BF9 11DB0-11DDB 11DE0-11DE9 11DF1 11F02 11F04-11F10 11F12-11F33 11F50-11F59 11FB0 1246F 12475-1247F "
    "12550-12686 12F90-12FF0 1342F 13441-13446 13460-143FA 16100-1611D 16130-16139 16A70-16ABE 16AC0-16AC9 "
    "16D40-16D6C 16D70-16D79 16EA0-16EB8 16EBB-16ED3 16FE2 16FF0-16FF6 1AFF0-1AFF3 1AFF5-1AFFB 1AFFD-1AFFE "
    "1B11F-1B128 1B132 1B155 1B168 1CCF0-1CCF9 1D6A6 1DF00-1DF81 1DF90-1DF96 1DFCD-1DFFF 1E030-1E06D 1E290-1E2AD "
    "1E4D0-1E4EB 1E4F0-1E4F9 1E5D0-1E5ED 1E5F0-1E5FA 1E6C0-1E6DE 1E6E0-1E6E2 1E6E4-1E6E5 1E6E7-1E6ED 1E6F0-1E6F4 "
    "1E6FE-1E6FF 1E7E0-1E7E6 1E7E8-1E7EB 1E7ED-1E7EE 1E7F0-1E7FE 1FBF0-1FBF9 2A6D7-2A6DF 2B735-2B73F 2B81E 2CEA2-2CEAD "
    "2EBF0-2EE5D 30000-3134A 31350-33479 "
)
# ... and these were pictures.
_PICTURES = (
    "2388 2600-2605 2607-2612 2614-2685 2690-2705 270E-2712 2763-2767 1F000-1F0FF 1F10D-1F10F 1F12F 1F16C-1F16F "
    "1F1AD-1F1E5 1F260-1F265 1F249-1F3FA 1F400-1F53D 1F546-1F64F 1F680-1F6FF 1F774-1F77F 1F7D5-1F7FF 1F80C-1F80F "
    "1F848-1F84F 1F85A-1F85F 1F888-1F88F 1F8AE-1F8FF 1F90C-1F93A 1F93C-1F945 1F947-1FFFD"
)


def _ranges(text: str) -> str:
    """Return hexadecimal code points and ranges of them as the inside of a character class."""
    points = [[f"\\U{point:>08}" for point in part.split("-")] for part in text.split()]
    return "".join(map("-".join, points))


def _grammar() -> str:
    """Return the standard tokenizer's grammar, written so that no alternative is ever tried twice."""
    # Signs that stand before digits were formats then.
    extend = r"[\p{WB=Format}\p{WB=Extend}\p{WB=ZWJ}\u0600-\u0605\u06DD\u070F\u08E2\U000110BD\U000110CD]"
    newer = f"[{_ranges(_NEWER)}]"
    ex = f"{extend}*+"
    letters = rf"[[\p{{WB=ALetter}}\p{{WB=Hebrew_Letter}}]--{newer}]"
    digits = rf"[[\p{{WB=Numeric}}\uFF10-\uFF19]--{newer}]"
    letter, number, hebrew = f"{letters}{ex}", f"{digits}{ex}", rf"\p{{WB=Hebrew_Letter}}{ex}"
    katakana = rf"(?:[\p{{WB=Katakana}}--{newer}]{ex})++"
    joiner = rf"(?:\p{{WB=ExtendNumLet}}{ex})"
    in_word = rf"[:\p{{WB=MidLetter}}\p{{WB=MidNumLet}}\p{{WB=Single_Quote}}]{ex}(?={letters})"
    in_number = rf"[\uFE10\uFE14\p{{WB=MidNum}}\p{{WB=MidNumLet}}\p{{WB=Single_Quote}}]{ex}(?={digits})"
    quoted = rf"\p{{WB=Single_Quote}}{ex}|\p{{WB=Double_Quote}}{ex}(?=\p{{WB=Hebrew_Letter}})"
    alphanumeric = rf"(?:{hebrew}(?:{quoted}|{in_word})?+|{letter}(?:{in_word})?+|{number}(?:{in_number})?+)++"
    core = f"(?:{alphanumeric}|{katakana})"
    word = f"{joiner}*+{core}(?:{joiner}++{core})*+{joiner}*+"

    plain = r"[\p{WB=Regional_Indicator}0-9#*©®™\u3030\u303D\U0001F3FB-\U0001F3FF]"
    picture = rf"[\p{{Extended_Pictographic}}{_ranges(_PICTURES)}[\p{{Emoji}}--{plain}]]"
    sans = f"[{extend}--[\\uFE0E\\uFE0F]]*+"
    emoji = rf"(?:{picture}{sans}[\U0001F3FB-\U0001F3FF]?+{sans}\uFE0F?+|[\U0001F3FB-\U0001F3FF]{sans})"
    sequence = rf"\u200D*+{emoji}(?:(?:(?<=\u200D)|\u200D++){emoji})*+"
    flag = rf"(?:\p{{WB=Regional_Indicator}}{ex}){{2}}"
    keycap = rf"[#*]{sans}\uFE0F?+\u20E3{sans}"

    asian = rf"(?:[\p{{LB=Complex_Context}}--{newer}]{ex})++"
    single = rf"[[\p{{Script=Han}}\p{{Script=Hiragana}}]--{newer}]{ex}"
    token = "|".join([word, sequence, keycap, flag, asian, single])
    # Runs that begin no token are taken whole, else a long one is looked at once per character.
    followers = rf"(?:[{extend}--\u200D\U0001F3FB-\U0001F3FF]++|\u200D++(?!{picture}|[\U0001F3FB-\U0001F3FF]))*+"
    idle = rf"(?:\p{{WB=ExtendNumLet}}{followers})++|\u200D++"
    return f"(?P<token>{token})|{idle}"


_TOKEN = regex.compile(_grammar(), regex.VERSION1)


def _split(text: str, start: int, end: int) -> list[str]:
    """Return the token at ``start`` cut the way a scanner with a window of 255 UTF-16 units does."""
    if _units(text[start:end]) <= MAX_TOKEN_CHARS:
        return [text[start:end]]
    pieces = []
    while start < end:
        window = min(end, start + MAX_TOKEN_CHARS)
        while _units(text[start:window]) > MAX_TOKEN_CHARS:
            window -= 1
        match = _TOKEN.match(text, start, window)
        if match and match.lastgroup:
            pieces.append(match[0])
            start = match.end()
        else:
            start += 1
    return pieces


def _units(text: str) -> int:
    """Return the length of ``text`` in UTF-16."""
    return len(text) if text.isascii() else len(text) + sum(char > "\uffff" for char in text)


# --- stems ------------------------------------------------------------------------------------------------------------


class _Porter(PorterStemmer):  # type: ignore[misc]  # snowballstemmer has no annotations
    """The algorithm as published and later revised by Porter, which Lucene has; Snowball's differs in two steps.

    Step 1b halves every double consonant but l, s and z (Snowball: nine of them), and in step 2
    ``-bli`` and ``-logi`` are endings too.
    """

    def _PorterStemmer__r_Step_1b(self) -> Any:
        length = len(self.current)
        done = super()._PorterStemmer__r_Step_1b()
        last, previous = self.current[-1:], self.current[-2:-1]  # a consonant y is upper case here
        if length - len(self.current) >= 2 and last.lower() == previous.lower() and last not in "aeiouylszbdfgmnprt":
            self.bra, self.ket = self.limit - 1, self.limit
            self.slice_del()
        return done

    def _PorterStemmer__r_Step_2(self) -> Any:
        for ending, revised in (("bli", "ble"), ("logi", "log")):
            if self.current.endswith(ending):
                self.ket = self.cursor
                self.cursor -= len(ending)
                self.bra = self.cursor
                if self._PorterStemmer__r_R1():
                    self.slice_from(revised)
                return True
        return super()._PorterStemmer__r_Step_2()


_PORTER = _Porter()


def _stem(word: str) -> str:
    """Return the stem of a lower-case word; words of one or two characters stay."""
    stem: str = word if _units(word) < 3 else _PORTER.stemWord(word)
    return stem
