"""Stage 1: its three steps, killed and taken up at each, on training tasks alone."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; install 'seed-suite[train]'")
pytest.importorskip("transformers", reason="transformers is not installed; install 'seed-suite[train]'")
pytest.importorskip("accelerate", reason="accelerate is not installed; install 'seed-suite[train]'")

import torch

from seed_agent.backends.hf import HFPolicy, make
from seed_agent.backends.hf_model import Row
from seed_agent.policy import Message
from seed_agent.skills.analyzer import Contaminated
from seed_agent.skills.annotators import ANNOTATORS, Options
from seed_agent.skills.parse import parse_skill
from seed_agent.skills.rules import RulesAnnotator
from seed_agent.skills.skill import ParseFailure, Skill
from seed_agent.tiny import build_text_model
from seed_agent.train.checkpoint import stage_of
from seed_agent.train.fit import FitPlan, encode, fit, mean_loss
from seed_agent.train.folder import begun, locked
from seed_agent.train.limits import OutOfMemory
from seed_agent.train.settings import Settings
from seed_agent.train.sft import NothingToLearn, run_sft
from seed_agent.trajectory import Episode
from seed_envs.errors import ConfigError, DataError

SETTINGS = Settings(
    env="seed_envs/ALFWorld-v0",
    language="alfworld/micro",
    max_turns=3,
    max_reply_tokens=6,
    analyzer_prompt_tokens=1_500,
    batch=4,
)
SIZE: dict[str, Any] = {"tasks": 6, "rollouts": 2, "epochs": 2, "lr": 1e-3, "batch": 4}
CHAT = (Message("user", "Your task is to: look."),)
FILES = ("trajectories.jsonl", "skills.jsonl", "pairs.jsonl", "metrics.jsonl")


class Killed(BaseException):
    """Stands for a process that ends in the middle."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_text_model(tmp_path_factory.mktemp("model") / "tiny", hidden=16, layers=1)


def policy_of(model: Path) -> HFPolicy:
    return make(f"{model}?batch=4&device=cpu")


@pytest.fixture(scope="module")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Return an uninterrupted run and what it said."""
    out = tmp_path_factory.mktemp("sft")
    return out, run_sft(SETTINGS, policy_of(model), out, **SIZE)


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_files_hold_what_was_played_written_and_learnt(whole: tuple[Path, dict[str, Any]]) -> None:
    out, said = whole
    episodes, pairs = records(out / "trajectories.jsonl"), records(out / "pairs.jsonl")
    assert len(episodes) == said["episodes"] == 12
    assert {episode["split"] for episode in episodes} == {"train"}
    assert len({episode["category"] for episode in episodes}) == 6, "a task of every category"
    assert said["skill/usable"] == len(pairs) == said["pairs"] + said["validation_pairs"]
    assert said["validation_pairs"] == 1
    for pair in pairs:
        assert not isinstance(parse_skill(pair["response"]), ParseFailure)
        assert f"episode_success: {'success' if pair['source_success'] else 'failure'}" in pair["prompt"]
    losses = [row["loss"] for row in records(out / "metrics.jsonl")]
    assert losses[1] < losses[0]


def test_the_export_is_a_stage_one_model_with_the_fitted_weights(
    whole: tuple[Path, dict[str, Any]], model: Path
) -> None:
    final = whole[0] / "final"
    assert stage_of(str(final)) == "sft"
    fitted, before = policy_of(final).model.state_dict(), policy_of(model).model.state_dict()
    assert any(not torch.equal(fitted[name], before[name]) for name in before)


@pytest.mark.parametrize("part", ["collect", "annotate", "fit"])
def test_a_run_killed_in_any_part_ends_as_one_that_was_not(
    part: str, whole: tuple[Path, dict[str, Any]], model: Path, tmp_path: Path
) -> None:
    def kill(metrics: Mapping[str, Any]) -> None:
        if metrics["part"] == part and metrics.get("done", 6) >= 6:
            raise Killed

    with pytest.raises(Killed):
        run_sft(SETTINGS, policy_of(model), tmp_path, **SIZE, report=kill)
    if part == "collect":  # the kill tore a line
        with (tmp_path / "trajectories.jsonl").open("a", encoding="utf-8") as file:
            file.write('{"torn')
    said = run_sft(SETTINGS, policy_of(model), tmp_path, **SIZE)
    assert said == whole[1]
    for name in FILES[2:]:
        assert (tmp_path / name).read_bytes() == (whole[0] / name).read_bytes()
    ours, theirs = (policy_of(folder / "final").model.state_dict() for folder in (tmp_path, whole[0]))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_finished_run_is_not_run_again(whole: tuple[Path, dict[str, Any]], model: Path) -> None:
    heard: list[str] = []
    said = run_sft(SETTINGS, policy_of(model), whole[0], **SIZE, report=lambda metrics: heard.append(metrics["part"]))
    assert said == whole[1]
    assert not heard


def test_another_plan_in_the_same_folder_is_refused(whole: tuple[Path, dict[str, Any]], model: Path) -> None:
    with pytest.raises(ConfigError, match="rollouts"):
        run_sft(SETTINGS, policy_of(model), whole[0], **{**SIZE, "rollouts": 3})


def test_an_episode_of_another_split_stops_the_run(
    whole: tuple[Path, dict[str, Any]], model: Path, tmp_path: Path
) -> None:
    shutil.copy(whole[0] / "sft.json", tmp_path)
    line = records(whole[0] / "trajectories.jsonl")[0] | {"split": "valid_seen"}
    (tmp_path / "trajectories.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    with pytest.raises(Contaminated, match="valid_seen"):
        run_sft(SETTINGS, policy_of(model), tmp_path, **SIZE)


def test_folders_of_other_things_are_left_alone(
    whole: tuple[Path, dict[str, Any]], model: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"holds train\.json and no sft\.json: .* choose another --out"):
        run_sft(SETTINGS, policy_of(model), tmp_path, **SIZE)
    assert [path.name for path in tmp_path.iterdir()] == ["train.json"]
    with pytest.raises(ConfigError, match=r"holds checkpoints and no train\.json"):
        begun(whole[0], SETTINGS)
    with locked(whole[0]), pytest.raises(ConfigError, match="another process"):
        run_sft(SETTINGS, policy_of(model), whole[0], **SIZE)


def test_a_line_torn_in_the_middle_is_named(whole: tuple[Path, dict[str, Any]], model: Path, tmp_path: Path) -> None:
    shutil.copy(whole[0] / "sft.json", tmp_path)
    (tmp_path / "trajectories.jsonl").write_text('{"no": "episode"}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"trajectories\.jsonl:1"):
        run_sft(SETTINGS, policy_of(model), tmp_path, **SIZE)


class Flaky:
    """An annotator whose server answers about the attempts below a number."""

    name = "flaky"
    answered = 0

    def annotate(self, episodes: Sequence[Episode]) -> list[Skill | ParseFailure]:
        failed = ParseFailure("call_failed", "the server timed out")
        skills = zip(episodes, RulesAnnotator().annotate(episodes), strict=True)
        return [skill if episode.attempt < Flaky.answered else failed for episode, skill in skills]


def _flaky(rest: str, options: Options) -> Flaky:
    return Flaky()


def test_skills_owed_by_a_dead_server_are_asked_for_again(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ANNOTATORS._entries, "flaky", _flaky)
    Flaky.answered = 0
    with pytest.raises(NothingToLearn, match=r"timed out.*repeat the command to ask again, or choose another"):
        run_sft(SETTINGS, policy_of(model), tmp_path, **SIZE, annotator="flaky")
    Flaky.answered = 2
    heard: list[str] = []
    said = run_sft(
        SETTINGS, policy_of(model), tmp_path, **SIZE, annotator="flaky", report=lambda m: heard.append(m["part"])
    )
    assert said["skill/usable"] == 12
    assert "collect" not in heard, "nothing is played twice"


def test_skills_that_come_after_the_fit_are_fitted(
    whole: tuple[Path, dict[str, Any]], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ANNOTATORS._entries, "flaky", _flaky)

    def run() -> tuple[dict[str, Any], list[str]]:
        notes: list[str] = []
        said = run_sft(
            SETTINGS,
            policy_of(model),
            tmp_path,
            **SIZE,
            annotator="flaky",
            report=lambda m: notes.append(m.get("note", "")),
        )
        return said, [note for note in notes if note]

    Flaky.answered = 1
    said, notes = run()
    assert said["skill/failed_call_failed"] == said["skill/usable"] == 6
    assert len(notes) == 1 and notes[0].startswith("repeat the command to ask again")
    kept = (tmp_path / "final" / "DONE").stat().st_ino
    assert run() == (said, notes), "still dead: the fit stays"
    assert (tmp_path / "final" / "DONE").stat().st_ino == kept

    Flaky.answered = 2
    said, notes = run()
    assert said == whole[1] and len(notes) == 1 and "that fit is removed" in notes[0]
    assert (tmp_path / "metrics.jsonl").read_bytes() == (whole[0] / "metrics.jsonl").read_bytes()
    ours, theirs = (policy_of(folder / "final").model.state_dict() for folder in (tmp_path, whole[0]))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_episodes_that_lack_of_memory_broke_are_not_kept(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = policy_of(model)

    def full(*_: Any) -> None:
        raise MemoryError("Unable to allocate 9 GiB")

    monkeypatch.setattr(policy, "generate", full)
    with pytest.raises(OutOfMemory, match=r"memory is too small \(Unable to allocate 9 GiB\); lower batch=4, "):
        run_sft(SETTINGS, policy, tmp_path, **SIZE)
    assert not records(tmp_path / "trajectories.jsonl")


# --- the fit ----------------------------------------------------------------------------------------------------------


def test_only_the_reply_is_fitted(model: Path) -> None:
    policy = policy_of(model)
    row = encode(policy, CHAT, "go to desk 1")
    assert row.ids[-1] == policy.tokenizer.eos_token_id
    assert policy.tokenizer.decode(row.ids[row.prompt : -1]) == "go to desk 1"
    longer = Row((*row.ids, 9, 9), row.prompt)
    assert mean_loss(policy, [row], 100) != mean_loss(policy, [longer], 100)


def test_prompts_are_fitted_as_well_where_they_are_given_a_weight(model: Path) -> None:
    def told(weight: float) -> tuple[float, float]:
        policy = policy_of(model)
        row = encode(policy, CHAT, "go to desk 1")
        prompt = Row(row.ids[: row.prompt], 1)
        history = fit(policy, [row], FitPlan(epochs=20, lr=1e-2, batch=1, warmup=0.0, prompt_weight=weight))
        return history[0]["loss"], mean_loss(policy, [prompt], 1_000)

    (first, without), (same, with_weight) = told(0.0), told(5.0)
    assert first == pytest.approx(same, abs=1e-5), "the loss that is told is of the replies"
    assert with_weight < 0.9 * without


@pytest.mark.parametrize("weight", [0.0, 0.3])
def test_micro_batches_do_not_change_the_fit(model: Path, weight: float) -> None:
    found = []
    for budget in (40, 10_000):
        policy = policy_of(model)
        policy.model.double()
        rows = [encode(policy, CHAT, text) for text in ("go", "take mug 1 from desk 1", "look", "open drawer 3")]
        fit(policy, rows, FitPlan(epochs=2, lr=1e-2, batch=4, prompt_weight=weight, micro_tokens=budget))
        found.append(policy.model.state_dict())
    for name, value in found[0].items():
        torch.testing.assert_close(value, found[1][name], rtol=0, atol=1e-9)


def test_the_rate_rises_and_falls() -> None:
    plan = FitPlan(lr=1.0, warmup=0.1)
    rates = [plan.rate(step, 100) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9] == pytest.approx(1.0)
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] < 0.001
