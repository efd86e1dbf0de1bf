"""How a WebShop store of the full catalogue's size is built, opened and searched.

    python benchmarks/webshop_store.py [--products 1180000] [--folder DIR] [--keep]

Writes a generated catalogue in the official format, compiles it with the command's own code, and
asks two fresh worker processes, alive at the same time, for times and memory. Each product has
the generated one's title, options and claims, and forty words more from an invented vocabulary
of 200,000 words whose frequencies follow Zipf's law, because sixty kinds of products alone have
too few words for a real index. Needs about 7 GB of disk, which is freed at the end.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import platform
import random
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from seed_envs.webshop.generator import Made, generate
from seed_envs.webshop.store import open_store, store_folder
from seed_envs.webshop.store_build import build_official

QUERIES = 400
WORKERS = 2
WORDS, EXTRA = 200_000, 40


def write_catalogue(folder: Path, count: int) -> None:
    """Write the three official files of the full catalogue, one product at a time."""
    with (
        (folder / "items_shuffle.json").open("w") as items,
        (folder / "items_ins_v2.json").open("w") as extras,
        (folder / "items_human_ins.json").open("w") as human,
    ):
        for number, made in enumerate(wordy(generate(count))):
            asin = json.dumps(made.item["asin"])
            items.write(("," if number else "[") + json.dumps(made.item))
            extras.write(f"{',' if number else '{'}{asin}:{json.dumps(made.extra)}")
            if number % 100 == 0:  # about as many instructions of people as upstream has
                human.write(f"{',' if number else '{'}{asin}:{json.dumps(made.human)}")
            if number % 100_000 == 0:
                print(f"  written: {number:,} products", flush=True)
        items.write("]")
        extras.write("}")
        human.write("}")


def wordy(products: Iterable[Made]) -> Iterator[Made]:
    """Give products more words, as sellers do."""
    rng = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(rng.choices(letters, k=rng.randint(4, 9))) for _ in range(WORDS)]
    weights = list(itertools.accumulate(1 / (rank + 10) for rank in range(WORDS)))
    for made in products:
        extra = rng.choices(words, cum_weights=weights, k=EXTRA)
        made.item["name"] += " " + " ".join(extra[:12])
        made.item["full_description"] += " " + " ".join(extra[12:])
        yield made


def worker(folder: Path, root: Path, queries: list[str], barrier: Barrier, answers: Any) -> None:
    """Open the store, search, read pages, and tell what it took."""
    started = time.perf_counter()
    shop = open_store(folder, root=root)
    opened = time.perf_counter() - started
    first, _ = timed(partial(shop.search, queries[0]))
    searches = [timed(partial(shop.search, query)) for query in queries]
    found = [shop.search(query)[:10] for query in queries[-100:]]
    pages = [timed(partial(list, map(shop.product, asins))) for asins in found]
    barrier.wait()  # both are alive, so that what they share is not counted as one's own
    memory = own_memory()
    barrier.wait()
    answers.put({"opened_s": opened, "first_ms": 1e3 * first, "searches": searches, "pages": pages, **memory})


def timed(function: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds on the clock and those of the processor."""
    clock, cpu = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - clock, time.process_time() - cpu


def own_memory() -> dict[str, float]:
    """Return this process's private and whole resident memory in MB."""
    rows = [line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]]
    kb = {row[0].rstrip(":"): int(row[1]) for row in rows}
    return {"private_mb": (kb["Private_Clean"] + kb["Private_Dirty"]) / 1024, "resident_mb": kb["Rss"] / 1024}


def measure(folder: Path, root: Path, queries: list[str]) -> list[dict[str, Any]]:
    """Return what the workers tell."""
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(WORKERS), context.Queue()
    workers = [context.Process(target=worker, args=(folder, root, queries, barrier, answers)) for _ in range(WORKERS)]
    for process in workers:
        process.start()
    told = [answers.get() for _ in workers]
    for process in workers:
        process.join()
    return told


def show(told: dict[str, Any]) -> None:
    """Print what one worker told."""
    print(f"  opened in {1e3 * told['opened_s']:.1f} ms; first search {told['first_ms']:.1f} ms")
    for name in ("searches", "pages"):
        for kind, values in zip(("clock", "cpu"), zip(*told[name], strict=True), strict=True):
            cuts = statistics.quantiles(values, n=20)
            p50, p95, most = 1e3 * cuts[9], 1e3 * cuts[18], 1e3 * max(values)
            print(f"  {name} ({kind}): p50 {p50:.2f} ms, p95 {p95:.2f} ms, max {most:.2f} ms")
    print(f"  memory: {told['private_mb']:.0f} MB private, {told['resident_mb']:.0f} MB resident")


def run(folder: Path, count: int) -> None:
    """Write, build and measure in ``folder``."""
    os.environ["SEED_CACHE"] = str(folder / "cache")
    started = time.perf_counter()
    write_catalogue(folder, count)
    size = sum(path.stat().st_size for path in folder.glob("*.json"))
    print(
        f"catalogue: {count:,} products, {size / 1e9:.2f} GB, written in {time.perf_counter() - started:.0f} s",
        flush=True,
    )
    started, cpu = time.perf_counter(), time.process_time()
    store = build_official(folder, "full", human=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sizes = {path.name: path.stat().st_size for path in store.rglob("*") if path.is_file()}
    print(
        f"build: {time.perf_counter() - started:.0f} s on the clock, {time.process_time() - cpu:.0f} s of processor, "
        f"peak memory {peak:.0f} MB, store {sum(sizes.values()) / 1e9:.2f} GB "
        f"(products {sizes['products.sqlite'] / 1e9:.2f} GB)",
        flush=True,
    )
    assert store == store_folder(folder, "full")
    products = open_store(store).instructed()
    asked = list(itertools.islice((row.text for product in products for row in product.human), QUERIES))
    for title, queries in (
        ("what people asked for, whole", asked),
        ("its first eight words", [" ".join(text.split()[:8]) for text in asked]),
    ):
        print(f"search by {title} ({len(queries)} queries):")
        for told in measure(store, folder, queries):
            show(told)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--products", type=int, default=1_180_000)
    parser.add_argument("--folder", type=Path, help="where to work (default: a temporary folder)")
    parser.add_argument("--keep", action="store_true", help="leave the catalogue and the store there")
    args = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}", flush=True)
    folder = args.folder or Path(tempfile.mkdtemp(prefix="webshop-store-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        run(folder.absolute(), args.products)
    finally:
        if not args.keep:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
