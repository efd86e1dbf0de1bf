"""Several processes that need the same index or shop for the first time: one makes it, nobody sees half of it."""

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from seed_envs.search import store

PROCESSES = 4
CHILDREN = """
import json, multiprocessing, os, sys, time
from seed_envs.search import retrievers
from seed_envs.searchqa.retrieval import open_searcher
from seed_envs.webshop.catalogue import open_catalogue
from seed_envs.webshop.lucene import with_lucene

write = retrievers.write_passages
def slowly(passages, folder, report):
    with open(sys.argv[2], "a") as log:
        log.write("built\\n")
    time.sleep(0.3)  # so that all are there before the first is done
    return write(passages, folder, report)
retrievers.write_passages = slowly

def corpus():
    return open_searcher("bm25", sys.argv[3]).search("title 3", 1)[0].id
def embedded():
    return open_searcher("bm25", "embedded").search("the town", 1)[0].id, open_catalogue("embedded").search("lamp", 3)
def lucene():
    return with_lucene(open_catalogue("embedded")).search("lamp", 3)

def work(barrier, answers):
    barrier.wait()
    try:
        answers.put(["ok", globals()[sys.argv[1]]()])
    except BaseException as error:
        answers.put([type(error).__name__, str(error)])

context = multiprocessing.get_context("fork")
barrier, answers = context.Barrier(PROCESSES), context.Queue()
children = [context.Process(target=work, args=(barrier, answers)) for _ in range(PROCESSES)]
for child in children:
    child.start()
print(json.dumps([answers.get() for _ in children]))
for child in children:
    child.join()
""".replace("PROCESSES", str(PROCESSES))


def first_use(
    what: str, tmp_path: Path, cli_env: Callable[..., dict[str, str]], timeout: float = 300
) -> tuple[set[str], int]:
    """Let processes begin at once with an empty cache; return their different answers and how often one built."""
    root, log = tmp_path / "root", tmp_path / "log"
    (root / "corpus").mkdir(parents=True)
    rows = [{"id": str(n), "contents": f'"Title {n}"\nBody {n}'} for n in range(30)]
    (root / "corpus" / "wiki.jsonl").write_text("\n".join(map(json.dumps, rows)))
    log.touch()
    done = subprocess.run(
        [sys.executable, "-c", CHILDREN, what, str(log), str(root)],
        env=cli_env(SEED_CACHE=str(tmp_path / "cache")),
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.splitlines()[-1])
    assert len(answers) == PROCESSES
    return {json.dumps(answer) for answer in answers}, len(log.read_text().splitlines())


def test_one_process_builds_the_index_of_a_corpus(tmp_path: Path, cli_env: Callable[..., dict[str, str]]) -> None:
    assert first_use("corpus", tmp_path, cli_env) == ({'["ok", "3"]'}, 1)
    (left,) = (tmp_path / "cache" / "searchqa").iterdir()
    assert left.name.startswith("bm25-")


def test_what_is_embedded_needs_no_file(tmp_path: Path, cli_env: Callable[..., dict[str, str]]) -> None:
    answers, built = first_use("embedded", tmp_path, cli_env)
    assert len(answers) == 1 and next(iter(answers)).startswith('["ok"') and not built
    assert not (tmp_path / "cache").exists()


@pytest.mark.search
def test_one_process_builds_the_lucene_index_of_the_shop(
    tmp_path: Path, cli_env: Callable[..., dict[str, str]]
) -> None:
    answers, built = first_use("lucene", tmp_path, cli_env, timeout=900)
    assert len(answers) == 1 and next(iter(answers)).startswith('["ok"') and built == 1
    (left,) = (tmp_path / "cache" / "webshop").iterdir()
    assert left.name.startswith("lucene-")


def test_a_lock_lets_one_in_while_folders_come_and_go(tmp_path: Path) -> None:
    partial, inside, seen = tmp_path / ".index.partial", threading.Lock(), Counter[str]()

    def builds() -> None:
        for _ in range(100):
            try:
                with store.locked(partial):
                    seen["alone" if inside.acquire(blocking=False) else "together"] += 1
                    (partial / "file").touch()
                    inside.release()
                    store.discard(partial)
            except BaseException as error:
                seen[repr(error)] += 1

    threads = [threading.Thread(target=builds) for _ in range(4)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert seen == {"alone": 400} and not partial.exists()


def test_a_file_in_the_way_is_no_reason_to_wait_for_ever(tmp_path: Path) -> None:
    (tmp_path / ".index.partial").touch()
    (tmp_path / ".link.partial").symlink_to(tmp_path / "nowhere")
    for name in (".index.partial", ".link.partial"):
        with pytest.raises(FileExistsError), store.locked(tmp_path / name):
            pass


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder in which nobody can make one")
def test_a_folder_that_cannot_be_made_is_no_reason_to_wait_for_ever() -> None:
    with pytest.raises(OSError, match="No such file or directory"), store.locked(Path("/proc/.index.partial")):
        pass
