"""What ALFWorld's rooms hold: tables of receptacles, objects, abilities and habits.

Source: ``alfworld.gen.constants`` of alfworld 0.4.2 (what fits where, what can be heated ...) and
counts over the official games (how many of each, where things lie at the start).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Counts = Sequence[int]
"""Equally likely numbers of something."""

MANY, SOME, FEW, ONE = (1, 2, 3), (1, 1, 2, 3), (1, 1, 2), (1,)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _weights(text: str) -> dict[str, int]:
    words = text.split()
    return {name: int(weight) for name, weight in zip(words[::2], words[1::2], strict=True)}


_SURFACE = _words(
    "AlarmClock Apple BaseballBat BasketBall Book Bowl Box Bread ButterKnife CD Candle CellPhone Cloth CreditCard Cup "
    "DishSponge Egg Fork Glassbottle HandTowel Kettle KeyChain Knife Ladle Laptop Lettuce Mug Newspaper Pan Pen Pencil "
    "PepperShaker Plate Pot Potato RemoteControl SaltShaker SoapBar SoapBottle Spatula Spoon SprayBottle Statue "
    "TennisRacket TissueBox ToiletPaper Tomato Vase Watch WateringCan WineBottle"
)
_SEAT = _words("BasketBall Book Box CellPhone Cloth CreditCard KeyChain Laptop Newspaper Pillow RemoteControl")
_DESK = _words(
    "AlarmClock BasketBall Book Bowl Box CD Candle CellPhone Cloth CreditCard Cup Glassbottle KeyChain Laptop Mug "
    "Newspaper Pen Pencil Plate RemoteControl SoapBottle SprayBottle Statue TennisRacket TissueBox ToiletPaper Vase "
    "Watch WateringCan WineBottle"
)

CONTAINS: Mapping[str, frozenset[str]] = {
    "ArmChair": _SEAT,
    "BathtubBasin": _words("Cloth DishSponge HandTowel SoapBar"),
    "Bed": _words("BaseballBat BasketBall Book CellPhone Laptop Newspaper Pillow TennisRacket"),
    "Cabinet": _words(
        "Book Bowl Box CD Candle Cloth Cup DishSponge Glassbottle HandTowel Kettle Ladle Mug Newspaper Pan "
        "PepperShaker Plate Plunger Pot SaltShaker SoapBar SoapBottle SprayBottle TissueBox ToiletPaper Vase "
        "WateringCan WineBottle"
    ),
    "Cart": _words(
        "Candle Cloth DishSponge HandTowel Mug Plunger SoapBar SoapBottle SprayBottle Statue TissueBox ToiletPaper Vase"
    ),
    "CoffeeMachine": _words("Mug"),
    "CoffeeTable": _SURFACE,
    "CounterTop": _SURFACE,
    "Desk": _DESK,
    "DiningTable": _SURFACE,
    "Drawer": _words(
        "Book ButterKnife CD Candle CellPhone Cloth CreditCard DishSponge Fork HandTowel KeyChain Knife Ladle "
        "Newspaper Pen Pencil PepperShaker RemoteControl SaltShaker SoapBar SoapBottle Spatula Spoon SprayBottle "
        "TissueBox ToiletPaper Watch WateringCan"
    ),
    "Dresser": _DESK - {"SoapBottle"},
    "Fridge": _words("Apple Bowl Bread Cup Egg Glassbottle Lettuce Mug Pan Plate Pot Potato Tomato WineBottle"),
    "GarbageCan": _words(
        "Apple Bread CD Cloth DishSponge Egg HandTowel Lettuce Newspaper Pen Pencil Potato SoapBar SoapBottle "
        "SprayBottle TissueBox ToiletPaper Tomato WineBottle"
    ),
    "HandTowelHolder": _words("HandTowel"),
    "LaundryHamper": _words("Cloth"),
    "Microwave": _words("Apple Bowl Bread Cup Egg Glassbottle Mug Plate Potato Tomato"),
    "Ottoman": _SEAT,
    "Safe": _words("CD CellPhone CreditCard KeyChain Statue Vase Watch"),
    "Shelf": _words(
        "AlarmClock Book Bowl Box CD Candle CellPhone Cloth CreditCard Cup DishSponge Glassbottle HandTowel Kettle "
        "KeyChain Mug Newspaper Pen Pencil PepperShaker Plate Pot RemoteControl SaltShaker SoapBar SoapBottle "
        "SprayBottle Statue TissueBox ToiletPaper Vase Watch WateringCan WineBottle"
    ),
    "SideTable": _SURFACE,
    "SinkBasin": _words(
        "Apple Bowl ButterKnife Cloth Cup DishSponge Egg Fork Glassbottle HandTowel Kettle Knife Ladle Lettuce Mug Pan "
        "Plate Pot Potato SoapBar Spatula Spoon Tomato"
    ),
    "Sofa": _SEAT,
    "StoveBurner": _words("Kettle Pan Pot"),
    "TVStand": _words("TissueBox"),
    "Toaster": frozenset(),
    "Toilet": _words(
        "Candle Cloth DishSponge HandTowel Newspaper SoapBar SoapBottle SprayBottle TissueBox ToiletPaper"
    ),
    "ToiletPaperHanger": _words("ToiletPaper"),
    "TowelHolder": _words("Towel"),
}
"""Object types each receptacle type takes (``canContain``)."""

ABILITIES: Mapping[str, frozenset[str]] = {
    "isReceptacleObject": _words("Bowl Box Cup Mug Pan Plate Pot"),
    "cleanable": _words(
        "Apple Bowl ButterKnife Cloth Cup DishSponge Egg Fork Kettle Knife Ladle Lettuce Mug Pan Plate Pot Potato "
        "SoapBar Spatula Spoon Tomato"
    ),
    "heatable": _words("Apple Bread Cup Egg Mug Plate Potato Tomato"),
    "coolable": _words("Apple Bowl Bread Cup Egg Lettuce Mug Pan Plate Pot Potato Tomato WineBottle"),
    "toggleable": _words("DeskLamp FloorLamp"),
    "sliceable": _words("Apple Bread Egg Lettuce Potato Tomato"),
}
"""Object types by the property that a fact of this name states."""

FIXED = _words(
    "Bathtub Blinds Chair Curtains DeskLamp FloorLamp HousePlant LaundryHamperLid LightSwitch Mirror Painting Poster "
    "ShowerDoor ShowerGlass Sink StoveKnob Television Window"
)
"""Object types that cannot be picked up; all others can."""

OPENABLE_PERCENT: Mapping[str, int] = {"Cabinet": 81, "Drawer": 84, "Fridge": 100, "Microwave": 100, "Safe": 85}
"""How many in a hundred of these receptacles open; the others, and all other types, have no door."""

HOLDS_ONE = _words("CoffeeMachine HandTowelHolder StoveBurner ToiletPaperHanger TowelHolder")
"""Receptacle types with at most one object at the start."""

STACKED = _words("Cabinet Drawer Shelf StoveBurner")
"""Receptacle types that come above one another along a wall."""

BASIN_OF = {"SinkBasin": "Sink", "BathtubBasin": "Bathtub"}
"""Receptacle types that are the inside of an object, which is listed too."""

HEIGHTS: Mapping[str, Counts] = {
    "ArmChair": (0,),
    "BathtubBasin": (30,),
    "Bed": (0,),
    "Cabinet": (38, 50, 150, 181, 202, 211),
    "CoffeeMachine": (93,),
    "CounterTop": (88, 97),
    "DiningTable": (70,),
    "Drawer": (17, 42, 68, 78, 94),
    "GarbageCan": (0,),
    "HandTowelHolder": (150,),
    "Microwave": (95, 148),
    "Safe": (0, 40),
    "Shelf": (20, 55, 90, 127, 160),
    "SinkBasin": (81,),
    "StoveBurner": (92,),
    "Toaster": (93,),
    "ToiletPaperHanger": (92,),
    "TowelHolder": (135,),
    "LightSwitch": (133,),
    "Mirror": (150,),
    "Painting": (150,),
    "Window": (150, 167),
}
"""Heights above the floor in centimetres, where they are not about knee height."""


@dataclass(frozen=True)
class RoomKind:
    """One kind of room: what stands in it and what lies about."""

    receptacles: Mapping[str, Counts]
    """How many of each receptacle type a room has."""
    scenery: Mapping[str, tuple[Counts, str]]
    """Fixed and loose things: how many, and the receptacle types they stand on (blank: none)."""
    stock: Mapping[str, tuple[int, Counts]]
    """Things to carry: percent of rooms that have the type, and how many a task puts there."""


def _stock(always: Counts, names: str, **some: str) -> dict[str, tuple[int, Counts]]:
    """Return a stock: ``names`` in every room, and further names by percent (``p40="Mug"``)."""
    stock = {name: (100, always) for name in names.split()}
    return stock | {name: (int(p[1:]), MANY) for p, group in some.items() for name in group.split()}


ROOMS: Mapping[str, RoomKind] = {
    "Kitchen": RoomKind(
        receptacles={
            "Cabinet": range(7, 19), "Drawer": range(2, 10), "StoveBurner": (4,), "CounterTop": (1, 2, 3, 4),
            "Shelf": (0, 0, 1, 3), "Fridge": ONE, "Microwave": ONE, "SinkBasin": ONE, "CoffeeMachine": ONE,
            "Toaster": ONE, "GarbageCan": ONE, "DiningTable": (0, 1), "SideTable": (0, 0, 0, 1),
        },
        scenery={
            "StoveKnob": ((4,), ""), "Chair": (range(4), ""), "Window": (FEW, ""), "LightSwitch": (ONE, ""),
            "HousePlant": ((0, 1), "CounterTop DiningTable"), "Blinds": ((0, 0, 0, 1), ""),
        },
        stock=_stock(
            MANY,
            "Apple Bowl ButterKnife Cup DishSponge Egg Fork Knife Lettuce Mug PepperShaker Plate Potato SaltShaker "
            "SoapBottle Spatula Spoon Tomato",
            p50="Kettle", p40="WineBottle", p33="Ladle", p28="Glassbottle", p20="Vase Statue",
            p14="CellPhone CreditCard",
        ) | {"Bread": (100, SOME), "Pot": (100, SOME), "Pan": (100, FEW)},
    ),
    "LivingRoom": RoomKind(
        receptacles={
            "Drawer": range(9), "Shelf": range(7), "SideTable": range(1, 4), "ArmChair": FEW, "Sofa": (1, 1, 1, 2),
            "GarbageCan": ONE, "CoffeeTable": ONE, "Cabinet": (0, 0, 1, 2), "DiningTable": (0, 1), "TVStand": (0, 1),
            "Dresser": (0, 1), "Ottoman": (0, 0, 0, 0, 1), "Safe": (0, 0, 0, 0, 1),
        },
        scenery={
            "Window": (MANY, ""), "Chair": (range(6), ""), "Painting": (MANY, ""), "FloorLamp": (ONE, ""),
            "LightSwitch": (ONE, ""), "Television": (ONE, "TVStand Dresser CoffeeTable"), "Curtains": ((0, 0, 1), ""),
            "HousePlant": (ONE, "SideTable CoffeeTable Dresser"), "Boots": ((0, 0, 0, 1), ""),
            "DeskLamp": ((0, 1), "SideTable Shelf Dresser CoffeeTable"),
        },
        stock=_stock(
            MANY,
            "CreditCard KeyChain RemoteControl Statue",
            p62="Newspaper", p54="Vase", p51="Watch", p36="TissueBox", p34="Plate", p28="Book", p22="CellPhone",
            p18="Pen Pencil", p13="Bowl", p10="Candle",
        ) | {"Box": (100, FEW), "Laptop": (100, FEW), "Pillow": (100, FEW)},
    ),
    "Bedroom": RoomKind(
        receptacles={
            "Drawer": range(2, 12), "Shelf": range(7), "Bed": (1, 1, 1, 1, 2), "Desk": (1, 1, 1, 1, 2),
            "GarbageCan": ONE, "SideTable": (0, 1, 1), "Dresser": (0, 1), "Cabinet": (0, 0, 0, 2),
            "LaundryHamper": (0, 0, 1), "ArmChair": (0, 0, 0, 1), "Safe": (0, 0, 1),
        },
        scenery={
            "Window": (FEW, ""), "Blinds": ((0, 1, 2), ""), "LightSwitch": (ONE, ""), "Mirror": (ONE, ""),
            "Chair": ((0, 1, 1, 2), ""), "Painting": ((0, 0, 1, 2), ""), "Poster": ((0, 0, 1), ""),
            "BaseballBat": ((0, 1), ""), "BasketBall": ((0, 1), ""), "TennisRacket": ((0, 1), ""),
            "Television": ((0, 0, 0, 1), "Dresser"), "HousePlant": ((0, 0, 0, 1), "Desk Dresser Shelf"),
            "DeskLamp": ((0, 1, 1, 1, 1), "Desk SideTable Dresser Shelf"),
        },
        stock=_stock(
            MANY,
            "AlarmClock Book CD CellPhone CreditCard KeyChain Pen Pencil",
            p50="Mug", p47="Bowl", p20="Cloth", p16="Statue", p14="TissueBox RemoteControl", p8="Vase Watch",
        ) | {"Laptop": (100, SOME), "Pillow": (100, SOME), "Box": (47, ONE)},
    ),
    "Bathroom": RoomKind(
        receptacles={
            "Cabinet": range(6), "Drawer": range(6), "HandTowelHolder": (1, 2), "SinkBasin": (1, 2),
            "TowelHolder": FEW, "CounterTop": ONE, "ToiletPaperHanger": ONE, "GarbageCan": ONE, "Toilet": ONE,
            "BathtubBasin": (0, 1), "Shelf": (0, 0, 1, 2), "Cart": (0, 0, 0, 0, 1),
        },
        scenery={
            "Mirror": (ONE, ""), "LightSwitch": (ONE, ""), "Window": ((0, 1, 1, 2), ""), "Plunger": (ONE, ""),
            "ScrubBrush": (ONE, ""), "ShowerDoor": ((0, 1), ""), "ShowerGlass": ((0, 1), ""),
        },
        stock=_stock(
            MANY, "Candle Cloth SoapBar SoapBottle SprayBottle", p23="TissueBox DishSponge"
        ) | {"ToiletPaper": (100, (2, 2, 3)), "HandTowel": (100, FEW), "Towel": (100, FEW)},
    ),
}  # fmt: skip
"""The four kinds of room."""

PLACES: Mapping[str, Mapping[str, int]] = {
    name: _weights(text)
    for name, text in {
        "AlarmClock": "Desk 36 Shelf 23 SideTable 20 Dresser 16 DiningTable 4",
        "Apple": "Fridge 26 CounterTop 25 GarbageCan 13 Microwave 13 DiningTable 13 SinkBasin 8",
        "Book": "Bed 36 Desk 13 CounterTop 12 Drawer 10 Dresser 6 CoffeeTable 5 Cabinet 4 SideTable 3 ArmChair 3",
        "Bowl": "Cabinet 30 Fridge 19 CounterTop 17 DiningTable 14 Desk 6 Shelf 5 SinkBasin 3 Microwave 3 "
                "CoffeeTable 1",
        "Box": "Sofa 21 CoffeeTable 21 DiningTable 21 SideTable 7 Shelf 7 Cabinet 7 Dresser 7 Desk 6 ArmChair 3",
        "Bread": "CounterTop 57 DiningTable 28 Fridge 13",
        "ButterKnife": "CounterTop 61 DiningTable 23 Drawer 8 SinkBasin 6",
        "CD": "Drawer 30 Desk 23 SideTable 13 Dresser 12 Shelf 10 GarbageCan 7",
        "Candle": "CounterTop 31 Toilet 31 Drawer 11 Cabinet 10 Shelf 5 SideTable 5 CoffeeTable 2",
        "CellPhone": "Drawer 21 Bed 18 Desk 14 CounterTop 10 SideTable 8 Dresser 8 Shelf 6 DiningTable 6 Safe 3 "
                     "ArmChair 3 CoffeeTable 2",
        "Cloth": "BathtubBasin 28 Cabinet 20 Drawer 18 CounterTop 16 SinkBasin 8 Shelf 5 Toilet 4 LaundryHamper 4",
        "CreditCard": "Drawer 25 SideTable 13 Shelf 12 Desk 9 Dresser 9 Sofa 8 CounterTop 8 ArmChair 6 CoffeeTable 5 "
                      "DiningTable 3",
        "Cup": "Cabinet 23 CounterTop 21 Fridge 21 DiningTable 13 SinkBasin 10 Microwave 7 Shelf 3 SideTable 2",
        "DishSponge": "CounterTop 25 Cabinet 22 Drawer 21 DiningTable 11 SinkBasin 7 GarbageCan 5 Shelf 3 "
                      "BathtubBasin 2",
        "Egg": "Fridge 25 CounterTop 24 GarbageCan 13 Microwave 13 SinkBasin 12 DiningTable 10",
        "Fork": "CounterTop 48 DiningTable 23 Drawer 20 SinkBasin 8",
        "Glassbottle": "Cabinet 36 CounterTop 27 DiningTable 13 SinkBasin 11 Fridge 9 Shelf 4",
        "HandTowel": "HandTowelHolder 97 CounterTop 3",
        "Kettle": "StoveBurner 40 CounterTop 29 Cabinet 23 DiningTable 7",
        "KeyChain": "Drawer 26 SideTable 16 Shelf 14 Desk 11 Dresser 10 CoffeeTable 6 ArmChair 6 DiningTable 5 Sofa 5 "
                    "Safe 2",
        "Knife": "CounterTop 51 DiningTable 26 Drawer 18 SinkBasin 4",
        "Ladle": "CounterTop 47 Cabinet 24 Drawer 18 DiningTable 10",
        "Laptop": "Bed 45 Desk 13 Sofa 12 CoffeeTable 10 DiningTable 9 Dresser 6 SideTable 3 ArmChair 3",
        "Lettuce": "CounterTop 43 Fridge 25 DiningTable 24 SinkBasin 5",
        "Mug": "CounterTop 23 CoffeeMachine 14 Cabinet 14 Fridge 12 DiningTable 10 Microwave 6 Desk 6 SinkBasin 5 "
               "Shelf 5 SideTable 2 Dresser 2",
        "Newspaper": "Sofa 22 CoffeeTable 19 Shelf 16 DiningTable 15 SideTable 13 ArmChair 6 Dresser 6",
        "Pan": "StoveBurner 54 CounterTop 31 Cabinet 6 Fridge 5 DiningTable 4",
        "Pen": "Desk 25 Drawer 16 SideTable 14 Shelf 12 Dresser 12 DiningTable 8 GarbageCan 4 CoffeeTable 3",
        "Pencil": "Desk 20 SideTable 18 Drawer 18 Shelf 12 Dresser 11 DiningTable 8 GarbageCan 5 CoffeeTable 4",
        "PepperShaker": "CounterTop 33 Cabinet 32 DiningTable 16 Drawer 15 Shelf 3",
        "Pillow": "Bed 66 Sofa 26 ArmChair 7",
        "Plate": "Cabinet 39 CounterTop 24 DiningTable 17 Fridge 10 Shelf 3 CoffeeTable 3",
        "Pot": "StoveBurner 74 CounterTop 14 Fridge 5 Cabinet 3 DiningTable 3",
        "Potato": "CounterTop 28 Fridge 26 DiningTable 17 SinkBasin 11 Microwave 10 GarbageCan 7",
        "RemoteControl": "CoffeeTable 21 SideTable 17 Sofa 17 ArmChair 10 Dresser 9 DiningTable 9 Drawer 8 Desk 5 "
                         "Shelf 3",
        "SaltShaker": "Cabinet 34 CounterTop 30 DiningTable 16 Drawer 14 Shelf 4",
        "SoapBar": "CounterTop 19 SinkBasin 16 Toilet 15 Drawer 14 Cabinet 12 BathtubBasin 11 GarbageCan 6 Shelf 5",
        "SoapBottle": "CounterTop 32 Cabinet 28 DiningTable 16 GarbageCan 11 Toilet 6 Shelf 5",
        "Spatula": "CounterTop 45 DiningTable 25 Drawer 20 SinkBasin 9",
        "Spoon": "CounterTop 38 Drawer 28 DiningTable 21 SinkBasin 12",
        "SprayBottle": "CounterTop 35 Toilet 23 Cabinet 19 GarbageCan 10 Shelf 5",
        "Statue": "Shelf 32 CounterTop 18 CoffeeTable 15 DiningTable 14 SideTable 12 Dresser 6 Desk 2 Safe 1",
        "TissueBox": "Shelf 17 Drawer 16 CoffeeTable 16 CounterTop 12 SideTable 9 Desk 8 Cabinet 4 TVStand 2",
        "ToiletPaper": "Toilet 24 CounterTop 20 ToiletPaperHanger 13 Drawer 12 Cabinet 11 GarbageCan 9 Shelf 7",
        "Tomato": "Fridge 35 CounterTop 31 DiningTable 16 GarbageCan 10 SinkBasin 6",
        "Towel": "TowelHolder 100",
        "Vase": "Shelf 35 CounterTop 20 Cabinet 18 DiningTable 8 CoffeeTable 7 Dresser 5 SideTable 5 Desk 1",
        "Watch": "Drawer 24 CoffeeTable 23 SideTable 21 DiningTable 15 Dresser 10 Shelf 4 Desk 3",
        "WineBottle": "CounterTop 36 Cabinet 26 DiningTable 25 GarbageCan 6 Shelf 5",
    }.items()
}  # fmt: skip
"""Where things lie at the start: receptacle types by weight."""
