"""The official files: odd values, torn files, and the real small catalogue as upstream loads it."""

import json
import lzma
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from seed_envs.errors import DataError, UnknownName
from seed_envs.webshop import official
from seed_envs.webshop.official import (
    Extra,
    clean_products,
    count_goals,
    find_files,
    read_extra,
    read_price,
    read_products,
)
from seed_envs.webshop.product import Product, document

ITEM = {
    "asin": "B01",
    "name": "Lamp",
    "full_description": "Shines.",
    "small_description": ["One", "Two"],
    "pricing": "$1.50",
    "customization_options": {"Color": [{"value": " Dark/Blue ", "image": "b.jpg"}, {"value": "RED"}], "Wrap": None},
    "images": ["a.jpg"],
    "category": "garden",
    "query": " Table LAMPS ",
    "product_category": "Home",
    "brand": "dropped",
}


def one(**changes: Any) -> Product:
    (product,) = clean_products([{**ITEM, **changes}], {}, {})
    return product


def write(folder: Path, items: object, extras: object = None, human: object = None) -> Path:
    for name, content in (
        ("items_shuffle_1000.json", items),
        ("items_ins_v2_1000.json", {} if extras is None else extras),
        ("items_human_ins.json", human),
    ):
        if content is not None:
            (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("text", "prices", "tag"),
    [
        ("$11.99", (11.99,), "$11.99"),
        ("$40.50", (40.5,), "$40.5"),
        ("$10.52 to $40.50", (10.52, 40.5), "$10.52 to $40.5"),
        ("$1,299.00", (1299.0,), "$1299.0"),
        ("$3 $2 $1", (3.0, 2.0), "$3.0 to $2.0"),
        ("from $-5 each", (5.0,), "$5.0"),
        ("", (100.0,), "$100.0"),
        (None, (100.0,), "$100.0"),
        ("Free", (100.0,), "$100.0"),
        ("$.", (100.0,), "$100.0"),
        ("$1.2.3 to $4", (4.0,), "$4.0"),
        ("$" + "9" * 400, (100.0,), "$100.0"),
        (12.5, (100.0,), "$100.0"),
    ],
)
def test_prices(text: object, prices: tuple[float, ...], tag: str) -> None:
    assert read_price(text) == (prices, tag)


def test_an_item_is_cleaned_as_upstream_does() -> None:
    product = one()
    assert (product.title, product.query, product.bullets) == ("Lamp", "table lamps", ("One", "Two"))
    assert product.options == {"color": ("dark | blue", "red")}
    assert product.option_images == {"dark | blue": "b.jpg", "red": None}
    assert product.attributes == ("DUMMY_ATTR",)
    assert (product.instruction, product.human, product.price) == (None, (), 1.5)


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"small_description": "Only"}, "bullets", ("Only",)),
        ({"small_description": []}, "bullets", ()),
        ({"small_description": None}, "bullets", ("",)),
        ({"customization_options": ""}, "options", {}),
        ({"customization_options": None}, "options", {}),
        ({"customization_options": {"Size": []}}, "options", {"size": ()}),
        ({"customization_options": {"Size": [{"value": 7}, {"value": None}, "x", {}]}}, "options", {"size": ("7",)}),
        ({"customization_options": {"A": [{"value": "1"}], "a": [{"value": "2"}]}}, "options", {"a": ("2",)}),
        ({"images": None}, "images", ()),
        ({"images": [None, "x"]}, "images", ("", "x")),
        ({"name": None}, "title", ""),
        ({"name": 5}, "title", "5"),
        ({"full_description": float("nan")}, "description", "nan"),
    ],
)
def test_odd_values(changes: dict[str, Any], field: str, value: object) -> None:
    assert getattr(one(**changes), field) == value


def test_items_without_a_usable_asin_are_left_out_and_counted() -> None:
    asins = ["B01", "nan", "B0123456789", "B01", None, 7, "", "B02"]
    skipped: Counter[str] = Counter()
    kept = clean_products([{**ITEM, "asin": asin, "name": str(n)} for n, asin in enumerate(asins)], {}, {}, skipped)
    assert [(p.asin, p.title) for p in kept] == [("B01", "0"), ("B02", "7")]
    assert skipped == {"no asin": 4, "asin too long": 1, "asin repeated": 1}


@pytest.mark.parametrize(
    ("value", "extra"),
    [
        (
            {"attributes": ["a b"], "instruction": "Find", "instruction_attributes": ["a b"]},
            (("a b",), "Find", ("a b",)),
        ),
        ({"attributes": []}, ((), None, ())),
        ({"instruction": None, "instruction_attributes": None}, (("DUMMY_ATTR",), None, ())),
        ({}, (("DUMMY_ATTR",), None, ())),
        (None, (("DUMMY_ATTR",), None, ())),
        (["a"], (("DUMMY_ATTR",), None, ())),
    ],
)
def test_attributes_and_instructions(value: object, extra: tuple[Any, ...]) -> None:
    assert read_extra(value) == Extra(*extra)


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_files_are_read_in_pieces_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(official, "_CHUNK", chunk)
    items = [{**ITEM, "asin": f"B{n}", "name": 'a "quoted", [nested] {text} \u2603' * n} for n in range(20)]
    extras = {f"B{n}": {"attributes": [f"a{n}"]} for n in range(20)}
    human = {
        "B3": [{"instruction": "hi.", "instruction_attributes": ["x"], "instruction_options": ["red"]}, 5],
        "B4": 1,
    }
    text = " \n" + json.dumps(items, indent=1) + "\n "
    products = list(read_products(find_files(write(tmp_path, text, extras, human), "small", human=True)))
    assert [p.title for p in products] == [item["name"] for item in items]
    assert [p.attributes for p in products] == [(f"a{n}",) for n in range(20)]
    assert [(asked.text, asked.options) for p in products for asked in p.human] == [("hi.", ("red",))]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ("", "begins with ''"),
        ("<html>quota</html>", "begins with '<'"),
        ("{}", "begins with '{'"),
        ("[", "Expecting value"),
        ('[{"asin": "B1"}', "ends too early"),
        ('[{"asin": "B1"} {}]', "where ',' or ']' was expected"),
        ('[{"asin": "B1"}] 5', "'5' after its end"),
        ('[{"asin": "B1"}, 5]', "item 1 is int"),
        ('[{"asin": "B1", "na', "Unterminated string"),
    ],
)
def test_torn_files_are_refused_in_one_line(tmp_path: Path, items: str, message: str) -> None:
    files = find_files(write(tmp_path, items), "small")
    with pytest.raises(DataError) as caught:
        list(read_products(files))
    text = str(caught.value)
    assert "items_shuffle_1000.json" in text
    assert message in text
    assert "fetch webshop" in text
    assert "\n" not in text


def test_bytes_that_are_no_text_and_a_list_in_place_of_an_object(tmp_path: Path) -> None:
    write(tmp_path, "[]", "[]")
    with pytest.raises(DataError, match=r"items_ins_v2_1000\.json .*begins with '\['"):
        list(read_products(find_files(tmp_path, "small")))
    (tmp_path / "items_ins_v2_1000.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(DataError, match="utf-8"):
        list(read_products(find_files(tmp_path, "small")))
    write(tmp_path, "[" * 100_000, "{}")
    with pytest.raises(DataError, match="items_shuffle"):
        list(read_products(find_files(tmp_path, "small")))


def test_missing_files_are_named_with_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"has no items_shuffle_1000\.json and no items_ins_v2_1000\.json; type: python -m"
    ):
        find_files(tmp_path, "small")
    (tmp_path / "data").mkdir()
    write(tmp_path / "data", "[]")
    assert find_files(tmp_path, "small").products.parent == tmp_path / "data"
    with pytest.raises(DataError, match=r"data has no items_human_ins\.json"):
        find_files(tmp_path, "small", human=True)
    with pytest.raises(UnknownName, match="full, small"):
        find_files(tmp_path, "tiny")


def test_goals_are_counted(tmp_path: Path) -> None:
    extras = {"B01": {"instruction": "Find", "instruction_attributes": ["a"]}, "B02": {"instruction": "Find"}}
    human = {"B01": [{"instruction": "x", "instruction_attributes": ["a"]}, {"instruction": "y"}], "B09": [{}]}
    write(tmp_path, [ITEM, {**ITEM, "asin": "B02"}], extras, human)
    assert [count_goals(tmp_path, p) for p in official.PROFILES] == [2, 1, 0]
    assert count_goals(tmp_path / "none", "small-human") == 0


# --- the real small catalogue -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("official")
    command = [sys.executable, str(shared / "data" / "unpack.py"), str(root), "--only", "webshop"]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return root / "webshop"


def test_the_real_products_are_what_upstream_loads(real: Path, shared: Path) -> None:
    skipped: Counter[str] = Counter()
    products = list(read_products(find_files(real, "small"), skipped))
    with lzma.open(shared / "data/webshop/products_1000_lucene_docs.jsonl.xz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    assert (len(products), skipped) == (1_000, {})
    for product, row in zip(products, rows, strict=True):
        theirs = row["product"]
        assert document(product) == row["contents"]
        ours = {
            "asin": product.asin,
            "Title": product.title,
            "category": product.category,
            "query": product.query,
            "product_category": product.product_category,
            "Description": product.description,
            "BulletPoints": list(product.bullets),
            "pricing": list(product.pricing),
            "Price": product.price_tag,
            "options": {name: list(values) for name, values in product.options.items()},
            "option_to_image": product.option_images,
            "Attributes": list(product.attributes),
            "images": list(product.images),
            "MainImage": product.main_image,
        }
        assert ours == {name: theirs[name] for name in ours}
        assert list(product.options) == list(theirs["options"])  # pages show them in this order


def test_the_real_prices(real: Path, shared: Path) -> None:
    lines = (shared / "golden/webshop/product_prices.jsonl").read_text(encoding="utf-8").splitlines()
    products = list(read_products(find_files(real, "small")))
    ranges = 0
    for product, row in zip(products, map(json.loads, lines), strict=True):
        assert (product.asin, list(product.pricing), product.price_tag) == (
            row["asin"],
            row["pricing"],
            row["price_tag"],
        )
        if len(product.pricing) == 1:
            assert product.price == row["purchase_price"]
        else:
            ranges += 1
            assert min(product.pricing) <= product.price <= max(product.pricing)
    assert ranges == 93


def test_the_real_instructions(real: Path) -> None:
    products = list(read_products(find_files(real, "small", human=True)))
    asked = [p for p in products if p.instruction is not None]
    assert len(asked) == 415
    assert sum(math.prod(len(values) for values in p.options.values()) for p in asked) == 6_910
    assert sum(len(p.human) for p in products) == 13
    assert [count_goals(real, profile) for profile in ("small-synthetic", "small-human")] == [6_910, 13]
