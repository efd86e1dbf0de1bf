"""Invented names for people, towns, rivers, companies and works; none is drawn twice."""

from collections.abc import Iterator

from seed_envs.seeding import Draws

MEN = (
    "Aldric Bertan Corvin Dorian Edric Falko Garrel Hadrin Ivor Jarek Kelvan Lorcan Marek Nestor Orlan Pavel Quillan "
    "Rurik Soren Tavish Ulric Valen Wendel Yorick Zoltan Anselm Bastian Casimir Davin Emeric Florin Gideon Halvard "
    "Isidor Jorund Kaspar Leopold Matthis Nikolas Osric"
).split()
WOMEN = (
    "Adela Brisa Celine Delia Elina Freya Gisela Hedda Ilse Jorina Katya Liora Maren Nadia Odile Petra Ravena Sabine "
    "Thea Una Vesna Wilma Ysolde Zelda Amalia Beatrix Clarissa Dagmar Evelin Fiora Gudrun Helga Ingrid Johanna Karina "
    "Ludmila Mirela Nerina Ottilie Philippa"
).split()
_FAMILY = (
    tuple("Ar Bel Cal Dor Esk Fen Gar Hol Kel Lan Mor Nor Ost Pel Ros Sal Tor Ul Var Wil Zan Brun Stav Krem".split()),
    tuple("band dell ford gard hart kov land man ner quist ridge sen tal vik well".split()),
)
_TOWN = (
    tuple(
        "Alder Birk Crag Dun Elm Frost Gold Hawk Iron Jarl Kings Lark Marsh Nether Oak Pine Raven Stone Thorn Under "
        "Vale Wolf Yarrow Ash Bran Swan".split()
    ),
    tuple("berg brook bury dale feld gate haven holm mere minster moor port stad wick".split()),
)
_RIVER = (
    tuple("Ana Bela Cora Dina Eru Fala Gila Hera Ila Jora Kama Lina Mura Nera".split()),
    tuple("bek dra gan la mis nza ra sk tha va wen zel".split()),
)
_COMPANY = tuple("Works Foundry Mills Brothers Shipping Instruments Press Pictures Glassworks Union".split())
_FIRST = (
    "Amber Ancient Bitter Borrowed Broken Burning Crimson Distant Drowned Empty Faded Final Forgotten Frozen Gilded "
    "Golden Hollow Hidden Idle Last Little Lonely Lost Midnight Narrow Northern Pale Patient Quiet Restless Scarlet "
    "Seventh Silent Silver Sleeping Stolen Sunken Third Velvet Wandering Winter Withered"
).split()
_SECOND = (
    "Almanac Archer Bell Bridge Candle Carriage Cathedral Clock Compass Cormorant Dancer Envoy Fiddler Gardener "
    "Garden Harbour Herald Island Journey Key Lantern Letter Lighthouse Mirror Messenger Mountain Ocean Orchard "
    "Painter Palace Piper River Road Sailor Season Shepherd Shore Staircase Station Summer Tailor Tower Traveller "
    "Violin Voyage Watchman"
).split()


def distinct(draws: Draws, *parts: tuple[str, ...], between: str = "") -> Iterator[str]:
    """Yield every combination of one text from each of ``parts``, in a drawn order."""
    texts = [""]
    for number, part in enumerate(parts):
        texts = [f"{text}{between if number else ''}{item}" for text in texts for item in part]
    yield from draws.shuffled(texts)


def families(draws: Draws) -> Iterator[str]:
    """Yield 360 family names."""
    return distinct(draws, *_FAMILY)


def towns(draws: Draws) -> Iterator[str]:
    """Yield 364 names of towns."""
    return distinct(draws, *_TOWN)


def rivers(draws: Draws) -> Iterator[str]:
    """Yield 168 names of rivers."""
    return distinct(draws, *_RIVER)


def companies(draws: Draws, family_names: tuple[str, ...]) -> Iterator[str]:
    """Yield names of companies made of family names."""
    return distinct(draws, family_names, _COMPANY, between=" ")


def titles(draws: Draws) -> Iterator[str]:
    """Yield about 1,900 titles of works."""
    return (f"The {title}" for title in distinct(draws, tuple(_FIRST), tuple(_SECOND), between=" "))
