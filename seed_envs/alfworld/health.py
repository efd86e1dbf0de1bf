"""What ``doctor`` looks at for ALFWorld beside the embedded games."""

import os

from seed_envs import paths
from seed_envs.alfworld.env import ALFWorldEnv
from seed_envs.alfworld.official import OfficialSource, released
from seed_envs.alfworld.textworld import check_installed
from seed_envs.errors import SeedError
from seed_envs.health import Finding

FETCH = "python -m seed_envs fetch alfworld"
BY_HAND = f"{FETCH}  (or with --by-hand)"
NAME = "seed_envs/ALFWorld-v0"


def doctor() -> list[Finding]:
    """Return findings on the official games, their annotations and the TextWorld backend."""
    return [*_official(), _textworld()]


def _official() -> list[Finding]:
    root = paths.data_root("alfworld")
    source = next((name for name in ("ALFWORLD_DATA", "SEED_DATA") if os.environ.get(name)), "the default")
    where = f"{root} (from {source})"
    try:
        games = OfficialSource(root)
    except SeedError:
        state = "has no json_2.1.1" if root.exists() else "does not exist"
        return [Finding(f"{NAME} data=official", "missing", f"{where} {state}", BY_HAND)]
    return [Finding(f"{NAME} data=official", "ok", where), *(_split(games, split) for split in ALFWorldEnv.splits)]


def _split(games: OfficialSource, split: str) -> Finding:
    subject, wanted = f"{NAME} data=official split={split}", len(released(split))
    if split not in games.splits:
        return Finding(subject, "missing", f"no folder; the release has {wanted} games", BY_HAND)
    try:
        found, odd = games.tasks(split), games.against_release(split)
    except SeedError as error:
        return Finding(subject, "wrong", str(error), f"{FETCH} --force")
    differences = ", ".join(f"{len(ids)} {what}" for what, ids in odd.items() if ids)
    if differences:
        text = f"{len(found)} games, the release has {wanted}: {differences}"
        return Finding(subject, "wrong", text, f"{FETCH} --force")
    silent = sum(not (games.folder / task.id / "traj_data.json").is_file() for task in found)
    human = f"; {silent} without traj_data.json, so goal_style=human cannot play them" if silent else ""
    return Finding(subject, "ok", f"{len(found)} games, as released{human}")


def _textworld() -> Finding:
    subject = f"{NAME} backend=textworld"
    try:
        versions = check_installed()
    except SeedError as error:
        return Finding(subject, "missing", str(error), "pip install 'seed-suite[alfworld]'")
    found = ", ".join(f"{package} {version}" for package, version in versions.items())
    return Finding(subject, "ok", found)
