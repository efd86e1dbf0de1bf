"""The base-policy builder: what tiny models are shown, that it is stated, and that it is the same every time."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; install 'seed-suite[train]'")
pytest.importorskip("transformers", reason="transformers is not installed; install 'seed-suite[train]'")
pytest.importorskip("accelerate", reason="accelerate is not installed; install 'seed-suite[train]'")

from seed_agent.backends.hf import make
from seed_agent.chat import Language
from seed_agent.policy import Message, Sampling
from seed_agent.skills.analyzer import Contaminated
from seed_agent.skills.insert import HEADING, remove_skill
from seed_agent.skills.parse import parse_skill
from seed_agent.skills.skill import ParseFailure
from seed_agent.train.base import BASES, CARD, Base, build_base, tags_of
from seed_agent.train.demos import Demonstrator, Demos, gather, think_household, think_moves
from seed_agent.train.rollouts import Stage
from seed_agent.train.settings import Settings
from seed_envs.alfworld.embedded import EmbeddedSource
from seed_envs.errors import ConfigError, UnknownName
from seed_envs.presets import get_preset
from seed_envs.prompting import builtin_template
from seed_envs.vector import Failure


def small(kind: str) -> Base:
    """Return a base that is made in seconds and knows nothing."""
    base = BASES[kind]
    recipe = replace(base.recipe, tasks=4, skilled=4, analyses=1, analysis_chars=2_500, search=0.9)
    return replace(base, recipe=recipe, plan=replace(base.plan, epochs=1), hidden=32, vocab=400, rows=4)


def test_a_folder_of_something_else_is_not_built_over(tmp_path: Path) -> None:
    from seed_agent.train.folder import BUILDING, check_base, locked

    (tmp_path / "train.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"holds notes\.txt and no card\.json: .* choose another --out"):
        build_base("alfworld", tmp_path, base=small("alfworld"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "train.json"]
    for half, content in (("state.json", '{"base": "alfworld"}'), (BUILDING, "")):  # killed late, killed early
        (tmp_path / half).write_text(content)
        check_base(tmp_path)
        (tmp_path / half).unlink()
    (tmp_path / "state.json").write_text('{"stage": "rl"}')
    with pytest.raises(ConfigError, match="holds notes"):
        check_base(tmp_path)
    with locked(tmp_path), pytest.raises(ConfigError, match="another process is training in"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def test_a_scene_that_cannot_be_had_is_not_thought_about() -> None:
    class Blind:
        def run(self, calls: Any) -> list[Any]:
            return [Failure("Gone", "no board") if method == "board" else ["up"] for _, method, *_ in calls]

    player: Any = SimpleNamespace(language=SimpleNamespace(preset=SimpleNamespace(kind="sokoban")))
    situation: Any = SimpleNamespace(row=0)
    assert Demonstrator(player, 0.0).act([situation], Blind()) == [Failure("Gone", "no board")]  # type: ignore[arg-type]


def _gathered(split: str) -> Demos:
    base = small("alfworld")
    stage = Stage(Settings(env=base.env, language=base.language), split, 4)
    preset = get_preset(base.language)
    try:
        return gather(stage, Language(builtin_template("alfworld", "compact"), preset, Sampling()), base.recipe, seed=0)
    finally:
        stage.close()


@pytest.fixture(scope="module")
def demos() -> Demos:
    return _gathered("train")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("base") / "alfworld"
    return folder, build_base("alfworld", folder, base=small("alfworld"))


def test_only_training_tasks_are_shown(demos: Demos) -> None:
    source = EmbeddedSource()
    assert {example.task_id for example in demos.examples} <= set(source.tasks("train").ids)
    with pytest.raises(Contaminated, match="valid_seen"):
        _gathered("valid_seen")


def test_every_kind_of_example_is_there_and_says_what_it_should(demos: Demos) -> None:
    by_kind = {kind: [e for e in demos.examples if e.kind == kind] for kind in ("play", "skill", "analysis")}
    assert all(by_kind.values())
    plain = {example.chat[0].text for example in by_kind["play"]}
    assert not any(HEADING in text for text in plain)
    for example in by_kind["skill"]:
        text = example.chat[0].text
        assert HEADING in text
        assert remove_skill(text).startswith("Task: ")
        assert "try something" not in example.reply, "play behind a skill is faultless"
    for example in by_kind["analysis"]:
        assert not isinstance(parse_skill(example.reply), ParseFailure)


def test_the_actions_shown_are_listed_in_the_prompt(demos: Demos) -> None:
    for example in demos.examples:
        if example.kind == "play":
            action = example.reply.partition("<action>")[2].removesuffix("</action>").split()
            listed = example.chat[0].text.partition("\ngo to ")[2]
            assert all(word in listed for word in action if word not in ("go", "to", "take", "from")), action


@pytest.mark.parametrize(
    ("plan", "drawn", "thought"),
    [
        (["go to drawer 1", "open drawer 1", "take mug 2 from drawer 1", "go to desk 1"], False, "find mug elsewhere"),
        (["go to desk 1", "move mug 2 to desk 1"], False, "bring mug to desk"),
        (["go to fridge 1", "cool mug 2 with fridge 1", "go to desk 1"], False, "cool mug"),
        (["use desklamp 1"], False, "use desklamp 1"),
        (["go to desk 1", "use desklamp 1"], False, "use desklamp elsewhere"),
        (["take mug 2 from drawer 1", "go to desk 1"], False, "find mug 2"),
        (["take mug 2 from drawer 1"], True, "try something"),
        ([], False, "go on"),
    ],
)
def test_thoughts_say_what_for_and_never_where_an_unseen_thing_is(plan: list[str], drawn: bool, thought: str) -> None:
    assert think_household(plan, drawn, "") == thought


def test_a_player_of_rooms_says_what_it_sees_before_it_moves() -> None:
    scene = "######\n#_P_O#\n#_X__#\n#__√_#\n######"  # a box stands on its target: nothing is left to do with it
    assert think_moves(["left"], False, scene) == "at 2 3 box 3 3 to 2 5 go"
    assert think_moves([], True, "####\n#SX#\n####") == "at 2 2 box 2 3 to 2 2 try"


def test_imperfect_play_also_looks_where_the_thing_is_not(demos: Demos) -> None:
    told = [example.reply for example in demos.examples if example.kind == "play"]
    looked = sum("<think>find" in reply and "<action>go to" in reply for reply in told)
    taken = sum("<think>see" in reply and "<action>take" in reply for reply in told)
    assert taken == sum("<think>see" in reply for reply in told)
    assert looked > 1.3 * taken


def test_the_card_states_what_was_seen(built: tuple[Path, dict[str, Any]], demos: Demos) -> None:
    folder, card = built
    assert card == json.loads((folder / CARD).read_text(encoding="utf-8"))
    seen = card["seen"]
    assert seen["splits"] == ["train"]
    assert seen["examples"] == {k: sum(e.kind == k for e in demos.examples) for k in ("play", "skill", "analysis")}
    assert seen["episodes"] == {"imperfect": 4 * BASES["alfworld"].recipe.imperfect, "faultless": 4}
    assert seen["tasks"] == 4


def test_the_same_seed_builds_the_same_weights(built: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    _, card = built
    assert build_base("alfworld", tmp_path / "again", base=small("alfworld")) == card


def test_a_finished_folder_is_kept_and_another_kind_refused(built: tuple[Path, dict[str, Any]]) -> None:
    folder, card = built
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert build_base("alfworld", folder, base=small("alfworld")) == card
    assert (folder / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(ConfigError, match="another"):
        build_base("alfworld", folder, base=small("alfworld"), seed=7)
    with pytest.raises(UnknownName, match="base policy"):
        build_base("chess", folder)


def test_the_model_loads_and_each_tag_is_a_token(built: tuple[Path, dict[str, Any]]) -> None:
    policy = make(str(built[0]))
    for tag in tags_of("alfworld"):
        assert len(policy.tokenizer(tag, add_special_tokens=False)["input_ids"]) == 1
    reply = "<think>find mug</think><action>go to desk 1</action>"
    ids = policy.tokenizer(reply, add_special_tokens=False)["input_ids"]
    assert policy.tokenizer.decode(ids, skip_special_tokens=True) == reply
    prompt = policy.prompt((Message("user", "Your task is to: put a mug in desk."),))
    assert policy.generate([prompt], Sampling(max_tokens=4), [0])


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("base") / "sokoban"
    yield folder, build_base("sokoban", folder, base=small("sokoban"))


def test_the_vision_model_sees_a_cell_as_a_patch(seeing: tuple[Path, dict[str, Any]]) -> None:
    folder, card = seeing
    assert card["seen"]["splits"] == ["train"]
    policy = make(f"{folder}?min_pixels=0")
    vision = policy.network.vision
    assert vision is not None
    _, grids = vision.patches([np.zeros((96, 96, 3), np.uint8)])
    assert grids == [(1, 6, 6)]
