"""Products: frozen prices, the text of the index, records, and the identity of a shop."""

import hashlib
import json
from dataclasses import replace

import pytest

from seed_envs.webshop.product import (
    HumanInstruction,
    Product,
    ShopHash,
    document,
    from_record,
    frozen_price,
    shop_sha256,
    to_record,
)

LAMP = Product(
    asin="B000000001",
    title="Bright LAMP",
    category="garden",
    query="lamps",
    product_category="Home",
    description="It Shines.",
    bullets=("Dims", "Glows"),
    pricing=(5.0, 7.5),
    price_tag="$5.0 to $7.5",
    price=6.25,
    options={"color": ("red", "dark blue"), "size": ("s",)},
    option_images={"red": "r.jpg", "dark blue": None, "s": None},
    attributes=("easy clean",),
    images=("a.jpg", "b.jpg"),
    instruction="Find me lamps",
    instruction_attributes=("easy clean",),
    human=(HumanInstruction("i need a lamp", ("easy clean",), ("red",)),),
)


def test_the_text_of_the_index() -> None:
    assert document(LAMP) == "bright lamp it shines. dims color: red, dark blue, and size: s"
    assert document(replace(LAMP, bullets=(), options={})) == "bright lamp it shines.  "


def test_images() -> None:
    assert (LAMP.main_image, replace(LAMP, images=()).main_image) == ("a.jpg", "")


def test_the_frozen_price_of_a_range_follows_from_the_asin() -> None:
    block = hashlib.sha256(b'["webshop","price","B000000001"]' + bytes(8)).digest()
    share = (int.from_bytes(block[:8], "big") >> 11) / 2**53
    assert frozen_price("B000000001", (5.0, 7.5)) == round(5 + 2.5 * share, 2)
    assert frozen_price("B000000001", (7.5, 5.0)) == round(7.5 - 2.5 * share, 2)
    assert frozen_price("B000000001", (5.0, 7.5, 1000.0)) == round(5 + 2.5 * share, 2)
    prices = [frozen_price(f"B{number:09d}", (10.0, 20.0)) for number in range(500)]
    assert all(10 <= price <= 20 and round(price, 2) == price for price in prices)
    assert 14.5 < sum(prices) / 500 < 15.5
    assert len(set(prices)) > 350


@pytest.mark.parametrize(("pricing", "price"), [((), 100.0), ((877.8,), 877.8)])
def test_a_price_without_a_range_is_itself(pricing: tuple[float, ...], price: float) -> None:
    assert frozen_price("B000000001", pricing) == price


def test_records_come_back_through_json() -> None:
    assert from_record(json.loads(json.dumps(to_record(LAMP)))) == LAMP
    for broken in ([], to_record(LAMP)[:-1], to_record(LAMP)[1:], {"asin": 1}):
        with pytest.raises((ValueError, TypeError, AttributeError)):
            from_record(broken)  # type: ignore[arg-type]


def test_the_identity_of_a_shop_is_what_it_sells_and_in_which_order() -> None:
    other = replace(LAMP, asin="B000000002")
    one = shop_sha256([LAMP, other])
    assert one == shop_sha256([replace(LAMP, instruction=None, instruction_attributes=(), human=()), other])
    assert one != shop_sha256([other, LAMP])
    changed = {
        "title": "x",
        "category": "x",
        "query": "x",
        "product_category": "x",
        "description": "x",
        "bullets": ("x",),
        "price": 1.0,
        "options": {"color": ("red",)},
        "attributes": (),
        "images": (),
    }
    for name, value in changed.items():
        assert shop_sha256([replace(LAMP, **{name: value}), other]) != one, name
    assert ShopHash().hexdigest() == hashlib.sha256(b"").hexdigest()
    assert shop_sha256([replace(LAMP, title="\ud800")]) != shop_sha256([LAMP])
