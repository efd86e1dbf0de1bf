"""How the encyclopedia tells what it knows: a passage of two or three sentences per entity."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from seed_envs.seeding import Draws

if TYPE_CHECKING:
    from seed_envs.searchqa.world import Entity

_TEMPLATES = {
    "town": (
        (
            "{name} is a town in {region}, on the {river}. It was founded in {founded} and has {population} "
            "inhabitants.",
            "{name} is a market town of {region}. The {river} flows through it. Settlers founded {name} in {founded}; "
            "{population} people live there today.",
            "Founded in {founded}, {name} lies in {region} on the banks of the {river}. Its population is "
            "{population}.",
        ),
        (
            "The town is known for its {craft}.",
            "Visitors come to buy {craft}, for which the town is known.",
            "For centuries its guilds have made {craft}.",
        ),
    ),
    "person": (
        (
            "{name} ({born}) is remembered as a {profession}, born in {birthplace}.",
            "{name}, born on {born} in {birthplace}, worked as a {profession}.",
            "Born in {birthplace} on {born}, {name} became a {profession}.",
        ),
        (
            "{They} travelled widely and left a large correspondence.",
            "Letters of {their} early years are kept in the town archive.",
            "{They} taught for some years before {they} could live by {their} work.",
            "Little is known about {their} schooling.",
        ),
    ),
    "company": (
        (
            "{name} is a {industry} company with headquarters in {headquarters}. {founder} founded it in {founded}.",
            "{name} is a company in the {industry} business, founded in {founded} by {founder}. It is based "
            "in {headquarters}.",
            "The {industry} company {name}, based in {headquarters}, was established by {founder} in {founded}.",
        ),
        (
            "It is best known for its {product}.",
            "Its main product is {product}.",
            "Most of its income comes from {product}.",
        ),
    ),
    "novel": (
        (
            "{name} is a {genre} novel by {creator}, published in {year} by {company}.",
            "{name} is a novel of {year} written by {creator}. {company} published this {genre}.",
        ),
        ("The story takes place in {place}.", "It is set in {place} and was translated twice."),
    ),
    "film": (
        (
            "{name} is a {year} {genre} film directed by {creator} and released by {company}.",
            "{name} is a {genre} film. It was directed by {creator}, and {company} released it in {year}.",
        ),
        ("Most scenes were shot in {place}.", "It was filmed in {place} over one summer."),
    ),
    "opera": (
        (
            "{name} is a {genre} by {creator}, first performed in {year}. The score was printed by {company}.",
            "{name} is an opera composed by {creator}. This {genre} had its premiere in {year}; {company} "
            "printed the score.",
        ),
        ("Its premiere took place in {place}.", "The first performance was given in {place}."),
    ),
    "painting": (
        (
            "{name} is a {genre} painted by {creator} in {year}. It belongs to the collection of {company}.",
            "{name} is a painting by {creator}, a {genre} finished in {year} and owned by {company}.",
        ),
        ("It hangs in the museum of {place}.", "The museum of {place} shows it to the public."),
    ),
}
_AN = re.compile(r"\ba(?= [aeiou])")
_FATHER = (
    "{Their} father was {father}.",
    "{They} was a child of {father}.",
    "{They} grew up in the house of {their} father, {father}.",
)


def tell(entity: "Entity", entities: Mapping[str, "Entity"], draws: Draws) -> str:
    """Return the passage about ``entity``; how it is worded is drawn, what it states is not."""
    known: dict[str, object] = {**entity.facts, **{link: entities[key].name for link, key in entity.links.items()}}
    pronouns = ("he", "his") if known.get("gender") == "m" else ("she", "her")
    known |= {"name": entity.name, "they": pronouns[0], "their": pronouns[1]}
    known |= {"They": pronouns[0].capitalize(), "Their": pronouns[1].capitalize()}
    facts, more = _TEMPLATES[str(known.get("sort", entity.kind))]
    sentences = [draws.choice(facts), draws.choice(more)]
    if "father" in known:
        sentences.insert(1, draws.choice(_FATHER))
    return _AN.sub("an", " ".join(sentences).format(**known))
