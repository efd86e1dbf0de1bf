"""Rules about the code itself: layers, lazy imports, determinism, sizes, what must not be named."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("seed_envs", "seed_agent", "harness")
"""Each package may import itself and the packages before it."""
HEAVY = {
    "accelerate",
    "alfworld",
    "faiss",
    "jnius",
    "starlette",
    "uvicorn",
    "textworld",
    "torch",
    "transformers",
    "vllm",
}
MAX_FILE_LINES, MAX_FUNCTION_LINES = 450, 70
SKIPPED = {"venv", "build", "dist", "runs", "__pycache__", "node_modules"}
"""Folders of files that are made, not written; hidden ones but .ci are skipped too."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Judge = Callable[[ast.AST, list[ast.AST]], str]


def _repository() -> Iterator[Path]:
    for folder, folders, files in os.walk(ROOT):
        folders[:] = sorted(f for f in folders if f not in SKIPPED and (f[0] != "." or f == ".ci"))
        yield from (Path(folder) / name for name in sorted(files))


MODULES = [path for path in _repository() if path.suffix == ".py"]
PRODUCT = [path for path in MODULES if path.relative_to(ROOT).parts[0] in LAYERS]


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _where(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"


def _dotted(node: ast.AST) -> str:
    """Return ``a.b.c`` for a chain of attributes that starts at a name, else ``.c`` or nothing."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _complaints(tree: ast.AST, judge: Judge) -> list[tuple[ast.AST, str]]:
    """Return the nodes that ``judge(node, ancestors)`` complains about, with the complaint."""
    found = []
    stack: list[tuple[ast.AST, list[ast.AST]]] = [(tree, [])]
    while stack:
        node, above = stack.pop()
        if complaint := judge(node, above):
            found.append((node, complaint))
        stack += [(child, [*above, node]) for child in ast.iter_child_nodes(node)]
    return found


# --- layers -----------------------------------------------------------------------------------------------------------


def _imports(path: Path) -> Iterator[tuple[ast.AST, str]]:
    """Yield the modules a file imports, those it names as ``"module:attribute"`` included."""
    package = path.relative_to(ROOT).with_suffix("").parts
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: -node.level]) if node.level else ""
            yield node, ".".join(filter(None, (base, node.module)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if match := re.fullmatch(r"([a-z_]+(?:\.\w+)*):[A-Za-z_]\w*", node.value):
                yield node, match[1]


def test_imports_point_downwards_only() -> None:
    wrong = [
        f"{_where(path, node)} imports {name}"
        for path in PRODUCT
        for node, name in _imports(path)
        if name.split(".")[0] in LAYERS[LAYERS.index(path.relative_to(ROOT).parts[0]) + 1 :]
    ]
    assert not wrong, wrong


def test_the_packages_do_not_import_tests_or_benchmarks() -> None:
    wrong = [
        f"{_where(p, n)} imports {m}"
        for p in PRODUCT
        for n, m in _imports(p)
        if m.split(".")[0] in ("tests", "benchmarks")
    ]
    assert not wrong, wrong


# --- what importing costs ---------------------------------------------------------------------------------------------

PROBE = """
import os, runpy, sys
events = []
def watch(event, args):
    if event == "open":
        name, mode, flags = args
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and name not in (os.devnull,) and not isinstance(name, int):
            events.append([event, str(name)])
    elif event in ("os.mkdir", "os.rename", "os.remove", "os.symlink", "subprocess.Popen", "os.posix_spawn"):
        events.append([event, str(args[0])])
    elif event.startswith("socket.") and event != "socket.__new__":
        events.append([event, str(args[1:])])
sys.addaudithook(watch)
module, *arguments = sys.argv[1:]
sys.argv = [module, *arguments]
status = 0
try:
    runpy.run_module(module, run_name="__main__", alter_sys=True) if arguments else __import__(module)
except SystemExit as stop:
    status = stop.code
import json
sys.__stderr__.write("\\n" + json.dumps({"status": status, "events": events, "modules": sorted(sys.modules)}))
"""


@pytest.mark.parametrize(
    "command",
    [
        ["seed_envs"],
        ["seed_agent"],
        ["seed_envs", "--help"],
        ["harness", "--help"],
        ["harness.compare", "--help"],
        ["harness.eval", "--help"],
        ["harness.figures", "--help"],
        ["harness.report", "--help"],
        ["harness.sweep", "--help"],
        ["harness.train", "--help"],
    ],
    ids=" ".join,
)
def test_starting_is_light(command: list[str], cli_env: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    """Nothing heavy is imported, no file is written, no process or connection is opened."""
    done = subprocess.run(
        [sys.executable, "-B", "-c", PROBE, *command], cwd=tmp_path, env=cli_env(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stderr.splitlines()[-1])
    assert report["status"] in (0, None), done.stderr
    assert not HEAVY & {name.split(".")[0] for name in report["modules"]}
    assert not report["events"]
    assert not list(tmp_path.iterdir())


# --- determinism ------------------------------------------------------------------------------------------------------

LISTINGS = {"listdir", "scandir", "walk", "glob", "iglob", "rglob", "iterdir"}
ORDER_FREE = {"sorted", "any", "all", "len", "max", "min", "sum", "set", "frozenset"}
GENERATORS = {"Generator", "BitGenerator", "SeedSequence", "PCG64", "Philox", "default_rng", "get_state", "set_state"}


def _unsorted_listing(node: ast.AST, above: list[ast.AST]) -> str:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return ""
    name = _dotted(node.func)
    if node.func.attr not in LISTINGS or name == "ast.walk" or any(map(_is_order_free, above)):
        return ""
    if isinstance(above[-1], ast.Call) and _dotted(above[-1].func) == "next" and isinstance(above[-2], ast.Compare):
        return ""  # next(listing, None) is None: asks only whether there is one
    if isinstance(above[-1], ast.withitem) and _only_used_sorted(above[-1].optional_vars, above[-2]):
        return ""
    return f"{name}() lists a folder in an order of the machine's; wrap it in sorted()"


def _is_order_free(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _dotted(node.func) in ORDER_FREE


def _only_used_sorted(variable: ast.expr | None, block: ast.AST) -> bool:
    """Whether ``with os.scandir(...) as variable`` uses it only inside ``sorted()`` and the like."""
    name = _dotted(variable) if variable else ""

    def uses(node: ast.AST) -> set[int]:
        return {id(n) for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == name and n is not variable}

    covered = set().union(*(uses(call) for call in ast.walk(block) if _is_order_free(call)))
    return bool(name) and uses(block) == covered


def _is_set(node: ast.AST) -> bool:
    made = isinstance(node, ast.Call) and _dotted(node.func) in ("set", "frozenset")
    return made or isinstance(node, ast.Set | ast.SetComp)


def _set_order(node: ast.AST, above: list[ast.AST]) -> str:
    iterated: list[ast.AST] = []
    if isinstance(node, ast.For):
        iterated = [node.iter]
    elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp):
        inside = isinstance(node, ast.GeneratorExp) and isinstance(above[-1], ast.Call)
        if not (inside and _is_order_free(above[-1])):
            iterated = [part.iter for part in node.generators]
    elif isinstance(node, ast.Call) and (_dotted(node.func) in ("list", "tuple") or _dotted(node.func) == ".join"):
        iterated = list(node.args)
    return "the order of a set is not fixed; sort it" if any(map(_is_set, iterated)) else ""


def _builtin_hash(node: ast.AST, above: list[ast.AST]) -> str:
    if not (isinstance(node, ast.Call) and _dotted(node.func) == "hash"):
        return ""
    if any(isinstance(outer, Function) and outer.name == "__hash__" for outer in above):
        return ""
    return "hash() changes from process to process; use seed_envs.seeding"


def _global_generator(node: ast.AST, above: list[ast.AST]) -> str:
    if isinstance(node, ast.ImportFrom) and node.module in ("random", "numpy.random"):
        names = {alias.name for alias in node.names} - GENERATORS
        return f"imports {', '.join(sorted(names))} from {node.module}" if names else ""
    if not isinstance(node, ast.Attribute):
        return ""
    head, _, tail = _dotted(node).rpartition(".")
    if head == "random" and tail not in ("getstate", "setstate", "Random"):  # Random(seed) is a private one
        return f"random.{tail} draws from the global generator; use seed_envs.seeding"
    if head in ("np.random", "numpy.random") and tail not in GENERATORS:
        return f"{head}.{tail} is the global generator; pass a Generator"
    return ""


@pytest.mark.parametrize("judge", [_unsorted_listing, _set_order, _builtin_hash, _global_generator])
def test_results_cannot_depend_on_the_machine(judge: Judge) -> None:
    # The conformance suite seeds the global generators on purpose, to see whether an environment touches them.
    exempt = ROOT / "seed_envs" / "check" if judge is _global_generator else ROOT / "nothing"
    paths = [path for path in PRODUCT if exempt not in path.parents]
    wrong = [f"{_where(path, node)}: {text}" for path in paths for node, text in _complaints(_tree(path), judge)]
    assert not wrong, wrong


@pytest.mark.parametrize(
    ("judge", "bad", "good"),
    [
        (_unsorted_listing, "for p in root.iterdir(): pass", "for p in sorted(root.iterdir()): pass"),
        (_unsorted_listing, "x = [n for n in os.listdir(d)]", "x = sorted(n for n in os.listdir(d))"),
        (
            _unsorted_listing,
            "with os.scandir(d) as found:\n    x = [e.name for e in found]",
            "with os.scandir(d) as found:\n    x = sorted(e.name for e in found)",
        ),
        (_set_order, "for x in {1, 2}: pass", "for x in sorted({1, 2}): pass"),
        (_set_order, "x = list(set(y))", "x = any(z for z in set(y))"),
        (_builtin_hash, "x = hash('a')", "def __hash__(self): return hash(self.a)"),
        (_global_generator, "import random\nx = random.random()", "x = np.random.default_rng(0)"),
        (_global_generator, "x = np.random.rand(3)", "rng: np.random.Generator"),
        (_global_generator, "from random import shuffle", "import random\nbefore = random.getstate()"),
    ],
)
def test_each_judge_can_complain(
    judge: Callable[[ast.AST, list[ast.AST]], str], bad: str, good: str, tmp_path: Path
) -> None:
    def complaints(source: str) -> bool:
        stack: list[tuple[ast.AST, list[ast.AST]]] = [(ast.parse(source), [])]
        for node, above in stack:
            stack += [(child, [*above, node]) for child in ast.iter_child_nodes(node)]
        return any(judge(node, above) for node, above in stack)

    assert complaints(bad)
    assert not complaints(good)


# --- size and text ----------------------------------------------------------------------------------------------------


def test_files_and_functions_stay_small() -> None:
    long = []
    for path in MODULES:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MAX_FILE_LINES:
            long.append(f"{path.relative_to(ROOT)}: {lines} lines; split it (limit {MAX_FILE_LINES})")
        for node in ast.walk(_tree(path)):
            if isinstance(node, Function) and (size := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION_LINES:
                long.append(f"{_where(path, node)}: {node.name} has {size} lines (limit {MAX_FUNCTION_LINES})")
    assert not long, long


def test_no_file_names_a_machine_or_a_registry_host() -> None:
    words = ["/" + "work/", "/" + "root/", "py" + "pi.org", "pythonhosted" + ".org", "registry.npm" + "js.org"]
    pattern = re.compile("|".join(map(re.escape, words)).encode())
    named = [
        f"{path.relative_to(ROOT)}: {match[0].decode()}"
        for path in _repository()
        if (match := pattern.search(path.read_bytes()))
    ]
    assert not named, named
