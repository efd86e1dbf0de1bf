"""An encyclopedia of things that do not exist: people, towns, works and companies with dated facts.

One passage per entity states its own facts; who an entity is related to is named, and nothing more
is told about it there. So a question of two steps takes two searches.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import islice

from seed_envs.searchqa import names, telling
from seed_envs.seeding import Draws, canonical, sha256_text

SEED = "searchqa encyclopedia 1"
"""Names the stream of draws; another seed is another world."""
SIZES = {"town": 200, "person": 720, "company": 250, "work": 450}
TRADES = {
    "novelist": ("novel", "write"),
    "film director": ("film", "direct"),
    "composer": ("opera", "compose"),
    "painter": ("painting", "paint"),
}
"""The professions that make works, with the kind of work."""
OTHERS = ("engineer", "botanist", "astronomer", "architect", "merchant", "physician", "cartographer", "chemist")
MONTHS = tuple("January February March April May June July August September October November December".split())
_REGIONS = tuple("Astervale Borrowmark Cindermoor Eastreach Fallowlands Greyshore Highmarch Westerling".split())
_CRAFTS = tuple("lace clocks cider porcelain bells rope paper cheese violins saffron glass ale".split())
_INDUSTRIES = {
    "textile": "sailcloth", "engineering": "steam pumps", "publishing": "atlases", "film": "newsreels",
    "glass": "lenses", "shipping": "ferries", "food": "preserves", "instrument": "barometers",
}  # fmt: skip
_GENRES = {
    "novel": ("mystery", "romance", "adventure", "satire"),
    "film": ("comedy", "thriller", "melodrama", "western"),
    "opera": ("comic opera", "tragic opera", "chamber opera"),
    "painting": ("landscape", "still life", "portrait"),
}


@dataclass(slots=True)
class Entity:
    """One thing of the world and what is known of it.

    ``facts`` holds texts and numbers; ``links`` holds the keys of other entities.
    """

    key: str
    """``p0012``: its kind's letter and its number."""
    kind: str
    name: str
    facts: dict[str, str | int] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class World:
    """All entities by key, and the passages about them."""

    entities: dict[str, Entity]
    passages: tuple[tuple[str, str, str], ...]
    """(id, title, text) of each, in the order of the keys."""
    texts: dict[str, str]
    """The passages' texts by key."""

    def of_kind(self, kind: str) -> list[Entity]:
        """Return the entities of a kind, in order."""
        return [entity for entity in self.entities.values() if entity.kind == kind]

    def sha256(self) -> str:
        """Return the hash of all passages."""
        return sha256_text(canonical(self.passages))


@cache
def world() -> World:
    """Make the world; the same on every machine, once per process."""
    entities: dict[str, Entity] = {}
    for make in (_towns, _people, _companies, _works):
        entities |= {entity.key: entity for entity in make(entities)}
    told = {key: telling.tell(entity, entities, Draws(SEED, "text", key)) for key, entity in entities.items()}
    return World(entities, tuple((key, entities[key].name, text) for key, text in told.items()), told)


def _named(kind: str, drawn: Iterator[str]) -> list[Entity]:
    found = islice(drawn, SIZES[kind])
    return [Entity(f"{kind[0]}{number:04d}", kind, name) for number, name in enumerate(found)]


def _towns(known: dict[str, Entity]) -> list[Entity]:
    draws = Draws(SEED, "towns")
    rivers = list(islice(names.rivers(draws), 60))
    made = _named("town", names.towns(draws))
    for town in made:
        town.facts = {
            "region": draws.choice(_REGIONS),
            "river": f"River {draws.choice(rivers)}",
            "founded": 950 + draws.below(800),
            "population": 2_000 + draws.below(90_000),
            "craft": draws.choice(_CRAFTS),
        }
    return made


def _people(known: dict[str, Entity]) -> list[Entity]:
    """Make people in generations: everyone after the first third has a father among those before."""
    draws = Draws(SEED, "people")
    towns, made, fathers, taken = list(known.values()), list[Entity](), list[Entity](), set[str]()
    families = list(islice(names.families(draws), 150))
    for number in range(SIZES["person"]):
        father = draws.choice(fathers) if number >= SIZES["person"] // 3 else None
        gender = "m" if draws.chance(0.55) else "f"
        family = father.name.split()[1] if father else draws.choice(families)
        given = names.MEN if gender == "m" else names.WOMEN
        free = [name for first in given if (name := f"{first} {family}") not in taken]
        name = draws.choice(free)
        taken.add(name)
        year = int(father.facts["born_year"]) + 22 + draws.below(18) if father else 1830 + draws.below(70)
        profession = draws.choice((*TRADES, *OTHERS))
        person = Entity(f"p{number:04d}", "person", name)
        person.facts = {
            "gender": gender,
            "born_year": year,
            "born": f"{1 + draws.below(28)} {draws.choice(MONTHS)} {year}",
            "profession": profession,
        }
        person.links = {"birthplace": draws.choice(towns).key} | ({"father": father.key} if father else {})
        made.append(person)
        if gender == "m" and year < 1920:
            fathers.append(person)
    return made


def _companies(known: dict[str, Entity]) -> list[Entity]:
    draws = Draws(SEED, "companies")
    people = [entity for entity in known.values() if entity.kind == "person"]
    towns = [entity for entity in known.values() if entity.kind == "town"]
    families = tuple(sorted({person.name.split()[1] for person in people}))
    made = _named("company", names.companies(draws, families))
    for company in made:
        founder, industry = draws.choice(people), draws.choice(tuple(_INDUSTRIES))
        company.facts = {
            "industry": industry,
            "product": _INDUSTRIES[industry],
            "founded": int(founder.facts["born_year"]) + 21 + draws.below(25),
        }
        company.links = {"founder": founder.key, "headquarters": draws.choice(towns).key}
    return made


def _works(known: dict[str, Entity]) -> list[Entity]:
    draws = Draws(SEED, "works")
    makers = [entity for entity in known.values() if entity.facts.get("profession") in TRADES]
    companies = [entity for entity in known.values() if entity.kind == "company"]
    towns = [entity for entity in known.values() if entity.kind == "town"]
    made = _named("work", names.titles(draws))
    for work in made:
        maker = draws.choice(makers)
        sort, _ = TRADES[str(maker.facts["profession"])]
        work.facts = {
            "sort": sort,
            "year": int(maker.facts["born_year"]) + 22 + draws.below(35),
            "genre": draws.choice(_GENRES[sort]),
        }
        work.links = {"creator": maker.key, "place": draws.choice(towns).key, "company": draws.choice(companies).key}
    return made
