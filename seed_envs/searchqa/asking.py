"""Questions about the encyclopedia in the manner of seven published sets, each answerable by searching.

A question's id says everything: ``2wiki-like/birthplace-of-director/w0031`` is a style, a form and
the entities it is asked about.
"""

from dataclasses import dataclass

from seed_envs.errors import DataError
from seed_envs.searchqa.world import MONTHS, Entity, World

SEEN = ("nq-like", "hotpotqa-like")
UNSEEN = ("triviaqa-like", "popqa-like", "2wiki-like", "musique-like", "bamboogle-like")
STYLES = (*SEEN, *UNSEEN)


@dataclass(frozen=True, slots=True)
class Hop:
    """One search that a question needs."""

    query: str
    passage: str
    """The id of the passage that must be found."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its golden answers."""

    id: str
    style: str
    text: str
    answers: tuple[str, ...]
    hops: tuple[Hop, ...] = ()
    """The searches that lead to the answer; none where nobody knows them."""


@dataclass(frozen=True, slots=True)
class _Chain:
    """Follow ``path`` from one entity of ``kind``; the last step is the answer."""

    style: str
    name: str
    kind: str
    path: tuple[str, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Contest:
    """Which of two entities of ``kind`` has the smaller ``fact``."""

    style: str
    name: str
    kind: str
    fact: str
    text: str


@dataclass(frozen=True, slots=True)
class _Same:
    """Whether two people have the same ``fact`` or link; yes or no."""

    style: str
    name: str
    fact: str
    text: str


_Form = _Chain | _Contest | _Same


def _chain(style: str, name: str, kind: str, path: str, *texts: str) -> _Chain:
    return _Chain(style, name, kind, tuple(path.split()), texts)


_LIST: tuple[_Form, ...] = (
    _chain("nq-like", "birthplace", "person", "birthplace", "where was {0} born", "what town was {0} born in"),
    _chain("nq-like", "birth-date", "person", "born", "when was {0} born", "what is the birth date of {0}"),
    _chain("nq-like", "profession", "person", "profession", "what did {0} do for a living", "what was the job of {0}"),
    _chain("nq-like", "author", "novel", "creator", "who wrote {0}", "who is the author of the novel {0}"),
    _chain("nq-like", "director", "film", "creator", "who directed {0}", "who was the director of the film {0}"),
    _chain("nq-like", "composer", "opera", "creator", "who composed the opera {0}"),
    _chain("nq-like", "painter", "painting", "creator", "who painted {0}", "who is the artist of the painting {0}"),
    _chain("nq-like", "film-year", "film", "year", "when did {0} come out", "what year was the movie {0} released"),
    _chain("nq-like", "founder", "company", "founder", "who started {0}", "who is the founder of {0}"),
    _chain("nq-like", "based", "company", "headquarters", "where is {0} based", "where is the head office of {0}"),
    _chain("nq-like", "river", "town", "river", "what river runs through {0}", "which river is {0} on"),
    _chain("nq-like", "settled", "town", "founded", "when was {0} founded", "what year was the town of {0} founded"),
    _chain("hotpotqa-like", "founder-born-in", "company", "founder birthplace",
           "The founder of {0} was born in which town?",
           "In which town was the person born who established the {industry} company {0}?"),
    _chain("hotpotqa-like", "founder-job", "company", "founder profession",
           "What profession did the founder of the {industry} company {0} have?"),
    _chain("hotpotqa-like", "base-river", "company", "headquarters river",
           "{0} has its headquarters in a town on which river?"),
    _chain("hotpotqa-like", "base-region", "company", "headquarters region",
           "In which region is the town where the {industry} company {0} is based?"),
    _chain("hotpotqa-like", "place-founded", "work", "place founded",
           "In which year was the town founded that is connected with the {sort} {0} of {year}?"),
    _chain("hotpotqa-like", "maker-birth-date", "work", "creator born",
           "What is the date of birth of the person who made the {year} {sort} {0}?"),
    _Contest("hotpotqa-like", "elder", "person", "born_year", "Who was born first, {0} or {1}?"),
    _Contest("hotpotqa-like", "older-firm", "company", "founded", "Which company was founded earlier, {0} or {1}?"),
    _Same("hotpotqa-like", "same-job", "profession", "Did {0} and {1} have the same profession?"),
    _chain("triviaqa-like", "who-wrote", "novel", "creator",
           "Which author wrote the {genre} '{0}', published in {year}?"),
    _chain("triviaqa-like", "who-composed", "opera", "creator",
           "Which composer's {genre} '{0}' was first heard in {year}?"),
    _chain("triviaqa-like", "who-shot", "film", "creator", "Who directed the {year} {genre} film '{0}'?"),
    _chain("triviaqa-like", "river-of", "town", "river", "On which river stands {0}, the town known for its {craft}?"),
    _chain("triviaqa-like", "started-by", "company", "founder", "{0}, known for its {product}, was founded by whom?"),
    _chain("popqa-like", "occupation", "person", "profession", "What is {0}'s occupation?"),
    _chain("popqa-like", "birth-city", "person", "birthplace", "In what city was {0} born?"),
    _chain("popqa-like", "father", "person", "father", "Who is the father of {0}?"),
    _chain("popqa-like", "genre", "work", "genre", "What genre is {0}?"),
    _chain("popqa-like", "author", "novel", "creator", "Who is the author of {0}?"),
    _chain("popqa-like", "composer", "opera", "creator", "Who was the composer of {0}?"),
    _chain("popqa-like", "located", "company", "headquarters", "In what city is {0} located?"),
    _chain("2wiki-like", "birthplace-of-director", "film", "creator birthplace",
           "Where was the director of film {0} born?"),
    _chain("2wiki-like", "birth-of-author", "novel", "creator born",
           "What is the date of birth of the author of {0}?"),
    _chain("2wiki-like", "grandfather", "person", "father father", "Who is the paternal grandfather of {0}?"),
    _chain("2wiki-like", "birth-of-father", "person", "father born", "When was {0}'s father born?"),
    _Contest("2wiki-like", "first-film", "film", "year", "Which film came out first, {0} or {1}?"),
    _Contest("2wiki-like", "elder", "person", "born_year", "Who is older, {0} or {1}?"),
    _chain("musique-like", "river-author", "novel", "creator birthplace river",
           "What river flows through the birthplace of the author of {0}?"),
    _chain("musique-like", "region-founder", "company", "founder birthplace region",
           "In which region is the town where the founder of {0} was born?"),
    _chain("musique-like", "publisher-founder-father", "novel", "company founder father",
           "Who is the father of the founder of the company that published {0}?"),
    _chain("musique-like", "town-of-maker", "work", "creator birthplace founded",
           "When was the birthplace of the person who made {0} founded?"),
    _chain("bamboogle-like", "founder-birth", "company", "founder born", "When was the founder of {0} born?"),
    _chain("bamboogle-like", "father-job", "person", "father profession",
           "What did the father of {0} do for a living?"),
    _chain("bamboogle-like", "father-of-director", "film", "creator father",
           "Who was the father of the director of {0}?"),
    _chain("bamboogle-like", "birth-town-founded", "person", "birthplace founded",
           "In what year was the town founded where {0} was born?"),
)  # fmt: skip
_FORMS = {(form.style, form.name): form for form in _LIST}


def ask(world: World, question_id: str) -> Question:
    """Return the question with this id.

    Raises:
        DataError: when the id names no form or entity, or the question has no answer.
    """
    style, name, keys = (*question_id.split("/"), "", "")[:3]
    form = _FORMS.get((style, name))
    subjects = [world.entities[key] for key in keys.split("+") if key in world.entities]
    made = None
    if form is not None and len(subjects) == keys.count("+") + 1 == _arity(form):
        made = _ask(world, form, subjects)
    if made is None:
        expected = "expected one like nq-like/birthplace/p0001"
        raise DataError(f"{question_id!r} is no question of the encyclopedia; {expected}")
    return Question(question_id, style, *made)


def forms(style: str) -> list[str]:
    """Return the names of a style's forms, in order."""
    return [form.name for form in _LIST if form.style == style]


def candidates(world: World, style: str, name: str) -> tuple[list[Entity], int]:
    """Return the entities that a form can be asked about, and how many it takes at once."""
    form = _FORMS[style, name]
    kind = "person" if isinstance(form, _Same) else form.kind
    known = [entity for entity in world.entities.values() if kind in (entity.kind, entity.facts.get("sort"))]
    return known, _arity(form)


def _arity(form: _Form) -> int:
    return 1 if isinstance(form, _Chain) else 2


def _ask(world: World, form: _Form, subjects: list[Entity]) -> tuple[str, tuple[str, ...], tuple[Hop, ...]] | None:
    """Return text, answers and hops; None when there is no (clear) answer."""
    if isinstance(form, _Chain):
        return _follow(world, form, subjects[0])
    one, two = subjects
    hops = tuple(Hop(entity.name, entity.key) for entity in subjects)
    if isinstance(form, _Same):
        same = one.facts[form.fact] == two.facts[form.fact]
        return form.text.format(one.name, two.name), ("yes" if same else "no",), hops
    if one.facts[form.fact] == two.facts[form.fact]:
        return None
    first = min(subjects, key=lambda entity: int(entity.facts[form.fact]))
    return form.text.format(one.name, two.name), (first.name,), hops


def _follow(world: World, form: _Chain, start: Entity) -> tuple[str, tuple[str, ...], tuple[Hop, ...]] | None:
    here, hops = start, list[Hop]()
    for step in form.path[:-1]:
        if step not in here.links:
            return None
        hops.append(Hop(here.name, here.key))
        here = world.entities[here.links[step]]
    hops.append(Hop(here.name, here.key))
    last = form.path[-1]
    if last in here.links:
        answers = _person(world.entities[here.links[last]].name, form.style)
    elif last in here.facts:
        answers = _spellings(last, str(here.facts[last]))
    else:
        return None
    text = form.texts[int(start.key[1:]) % len(form.texts)].format(start.name, **start.facts)
    return text.lower() if form.style == "nq-like" else text, answers, tuple(hops)


def _person(name: str, style: str) -> tuple[str, ...]:
    """Return a name, with the surname first as well where the set lists aliases."""
    parts = name.split()
    return (name, f"{parts[1]}, {parts[0]}") if style == "triviaqa-like" and len(parts) == 2 else (name,)


def _spellings(fact: str, value: str) -> tuple[str, ...]:
    if fact == "river":
        return value, value.removeprefix("River ")
    if fact == "born":
        day, month, year = value.split()
        assert month in MONTHS
        return value, f"{month} {day}, {year}"
    return (value,)
