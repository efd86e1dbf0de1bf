"""What ``doctor`` looks at for WebShop beside the embedded goals."""

import importlib.util

from seed_envs import paths
from seed_envs.errors import SeedError
from seed_envs.health import Finding
from seed_envs.search.lucene import java_home
from seed_envs.webshop.official import PROFILES, RELEASED
from seed_envs.webshop.sources import OfficialGoals, open_goals
from seed_envs.webshop.store import read_manifest, store_folder
from seed_envs.webshop.tagger import SPACY_MODELS

NAME = "seed_envs/WebShop-v0"
FETCH = "python -m seed_envs fetch webshop"


def doctor() -> list[Finding]:
    """Return findings on the official files by profile, the spaCy tagger and real Lucene."""
    return [*map(_profile, PROFILES), _spacy(), _lucene()]


def _profile(profile: str) -> Finding:
    subject = f"{NAME} data=official profile={profile}"
    root, (size, _) = paths.data_root("webshop"), PROFILES[profile]
    if not root.exists():
        return Finding(subject, "missing", f"{root} does not exist", f"{FETCH}  (or with --by-hand)")
    if size == "full":
        return _store(subject, profile)
    try:
        source = open_goals("official", profile, "fixed", 0)
        found = {split: source.tasks(split) for split in source.splits}
    except SeedError as error:
        return Finding(subject, "missing", str(error), f"{FETCH}  (or with --by-hand)")
    assert isinstance(source, OfficialGoals)
    count = len(source.goals)
    local = any(tasks.name.startswith("webshop-local-") for tasks in found.values())
    if local or count != RELEASED[profile]:
        text = f"{count} goals that are not those of the release, which has {RELEASED[profile]}"
        return Finding(subject, "wrong", text, f"{FETCH} --force")
    return Finding(subject, "ok", f"{count} goals, as released, in {root}")


def _store(subject: str, profile: str) -> Finding:
    """Look at the store of the full catalogue, without reading gigabytes."""
    build = f"python -m seed_envs build webshop --profile {profile}"
    try:
        manifest = read_manifest(store_folder(paths.data_root("webshop"), "full"))
    except SeedError as error:
        return Finding(subject, "missing", str(error), f"{FETCH}, then {build}")
    return Finding(subject, "ok", f"a store of {manifest['products']} products")


def _spacy() -> Finding:
    subject = f"{NAME} tagger=spacy"
    found = [name for name in SPACY_MODELS if importlib.util.find_spec(name)]
    if importlib.util.find_spec("spacy") is None or not found:
        what = "spaCy" if importlib.util.find_spec("spacy") is None else "spaCy's English model"
        return Finding(subject, "missing", f"{what} is not installed", "pip install 'seed-suite[nlp]'")
    return Finding(subject, "ok", f"spaCy with {found[0]}")


def _lucene() -> Finding:
    subject = f"{NAME} search=pyserini"
    remedy = "pip install 'seed-suite[search]'"
    if importlib.util.find_spec("pyserini") is None:
        return Finding(subject, "missing", "pyserini is not installed", remedy)
    try:
        home, version = java_home()
    except SeedError as error:
        return Finding(subject, "missing", str(error), remedy)
    return Finding(subject, "ok", f"Java {version} in {home}")
