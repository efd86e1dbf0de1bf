"""Names resolved late, and plug-ins found by entry point or named by the user."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from seed_envs import registry
from seed_envs.errors import ConfigError, UnknownName
from seed_envs.registry import Registry, load_plugins


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return an empty current folder; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_LOADED", set())
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    before = set(sys.modules)
    yield tmp_path
    for name in sys.modules.keys() - before:
        del sys.modules[name]


def test_entries_are_imported_at_first_use() -> None:
    table: Registry[object] = Registry("thing")
    table.add("late", "no_such_module:thing")
    table.add("join", "os.path:join")
    table.add("now", 3)
    assert table.get("join") is __import__("os").path.join
    assert table.get("now") == 3
    assert list(table) == ["join", "late", "now"]
    assert "late" in table
    with pytest.raises(ImportError):
        table.get("late")


def test_a_name_is_taken_once() -> None:
    table: Registry[object] = Registry("thing")
    table.add("a", "os:sep")
    table.add("a", "os:sep")
    with pytest.raises(ConfigError, match="thing 'a' is registered already"):
        table.add("a", "os:linesep")


def test_an_entry_may_be_added_again_after_it_was_used() -> None:
    table: Registry[object] = Registry("thing")
    table.add("a", "os:sep")
    table.get("a")
    table.add("a", "os:sep")
    assert table.get("a") == "/"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("oracel", "did you mean oracle"), ("zzz", "known: noisy-oracle, oracle, random")],
)
def test_an_unknown_name_is_told_its_neighbours(name: str, hint: str) -> None:
    table: Registry[object] = Registry("policy")
    for known in ("oracle", "random", "noisy-oracle"):
        table.add(known, 1)
    with pytest.raises(UnknownName, match=f"unknown policy '{name}'; {hint}"):
        table.get(name)


def test_a_plugin_in_the_current_folder_is_loaded_once(folder: Path) -> None:
    (folder / "my_plugin.py").write_text("calls = []\n\ndef register():\n    calls.append(1)\n")
    assert load_plugins(["my_plugin:register"])[-1] == "my_plugin:register"
    load_plugins(["my_plugin:register"])
    assert sys.modules["my_plugin"].calls == [1]
    assert "my_plugin" in load_plugins(["my_plugin"])


def test_a_file_in_the_current_folder_hides_no_installed_module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "wave", raising=False)
    (folder / "wave.py").write_text("raise RuntimeError('the wrong module')\n")
    (folder / "my_plugin2.py").write_text("import wave\nfrom wave import open\n")
    load_plugins(["my_plugin2"])


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        (None, "no_such_plugin", "No module named 'no_such_plugin'"),
        ("", "broken_a:register", "has no attribute 'register'"),
        ("import no_such_thing", "broken_b", "No module named 'no_such_thing'"),
        ("1 +", "broken_c", "SyntaxError"),
        ("raise KeyError('x')", "broken_d", "KeyError: 'x'"),
        ("def register(): return 1 / 0", "broken_e:register", "ZeroDivisionError: division by zero"),
        (None, "", "expected module or module:function"),
        (None, ".relative", "expected module or module:function"),
    ],
)
def test_a_broken_plugin_is_one_line(folder: Path, source: str | None, name: str, message: str) -> None:
    if source is not None:
        (folder / f"{name.partition(':')[0]}.py").write_text(source)
    with pytest.raises(ConfigError) as caught:
        load_plugins([name])
    assert str(caught.value).startswith(f"plug-in {name!r} cannot be loaded: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError):
        load_plugins([name])


def test_installed_plugins_come_first_and_sorted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("beta", "alpha"):
        (folder / f"{name}_plugin.py").write_text("")
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[seed.plugins]\n{name} = {name}_plugin\n")
    monkeypatch.syspath_prepend(str(folder))
    loaded = load_plugins(["alpha_plugin"])
    assert [name for name in loaded if name.endswith("_plugin")] == ["alpha_plugin", "beta_plugin"]
