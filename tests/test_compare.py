"""``python -m harness.compare``: what it says, what it refuses, and what it takes for one method."""

import json
import shutil
from pathlib import Path

import pytest
from report_runs import episode, write_run
from training_runs import write_training

from harness.compare import main
from harness.summary import read_records, summarise, to_bytes
from seed_agent.train.settings import Settings
from seed_envs.seeding import canonical, sha256_text

GOOD, BAD = "success", "failure"


def make(
    folder: Path, wins: set[int], *, n: int = 40, policy: str = "good", seed: int | None = None, **changes
) -> Path:
    """Write a finished run of ``n`` tasks in ``seen`` of which ``wins`` were won."""
    episodes = changes.pop("episodes", None) or [
        episode(i, GOOD if i in wins else BAD, policy=policy) for i in range(n)
    ]
    write_run(folder, episodes)
    state = json.loads((folder / "run.json").read_bytes())
    state["config"] |= {"policy": policy, **changes}
    if seed is not None:
        state["provenance"][-1]["training"] = {
            "seed": seed, "stage": "rl", "iteration": 3, "base": "base", "sft": None, "curve": [],
            "settings": {"method": policy, "iterations": 3, "seed": seed},
        }  # fmt: skip
        state["config"]["model"] = {"weights_sha256": str(seed)}
    return sign(folder, state, protocol=changes.get("protocol", {"name": "full"}))


def sign(folder: Path, state: dict | None = None, **config) -> Path:
    """Have run.json describe the records beside it, as harness.eval does, and carry its digest."""
    state = state or json.loads((folder / "run.json").read_bytes())
    records = list(read_records(folder / "trajectories.jsonl"))
    splits = {
        name: {
            "manifest": record.env.manifest,
            "manifest_sha256": record.env.manifest_sha256,
            "tasks": len({r.task_id for r in records if r.split == name}),
            "episodes": sum(r.split == name for r in records),
        }
        for name, record in {r.split: r for r in records}.items()
    }
    state["config"] |= {"max_turns": records[0].env.max_turns, "splits": splits, **config}
    state["digest"] = sha256_text(canonical(state["config"]))
    (folder / "run.json").write_text(json.dumps(state))
    summary = summarise(records, planned=len(records), protocol=state["config"]["protocol"]["name"])
    (folder / "summary.json").write_bytes(to_bytes(summary))
    return folder


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def command(*args):
        code = main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return code, out, err

    return command


def test_two_runs_on_the_same_tasks(run):
    """21 tasks won by A alone, 9 by B alone: p 0.0428."""
    make(Path("a"), set(range(30)), policy="oracle")
    make(Path("b"), set(range(21, 39)) - set(range(21, 30)) | set(range(21, 30)), policy="random")
    code, out, err = run("a", "b")
    assert (code, err) == (0, "")
    # a wins 0..29, b wins 21..38: 21 for a alone, 9 for b alone, 9 both, one neither
    assert "toy/Room-v0  seen  at most 8 turns  protocol full  intervals 95 %" in out
    assert "evaluation noise only" in out
    [line] = [line for line in out.splitlines() if line.startswith("oracle - random")]
    assert line.split()[3] == "+30.0" and " 21 " in line and " 9 " in line and line.split().count("0.0428") == 2
    assert line.endswith("mcnemar")
    code, out, _ = run("a", "b", "--json")
    [table] = json.loads(out)["tables"]
    assert [side["pooled"] for side in table["sides"]] == [0.75, 0.45]
    [pair] = table["pairs"]
    assert (pair["found"]["gained"], pair["found"]["lost"], pair["per_seed"]) == (21, 9, {})


def test_requirements_decide_the_exit_code(run):
    make(Path("a"), set(range(30)), policy="oracle")
    make(Path("b"), set(range(21, 39)), policy="random")
    assert run("a", "b", "--require", "oracle>random")[0] == 0
    code, out, err = run("a", "b", "--require", "oracle>random", "--alpha", "0.01")
    assert code == 1 and "required oracle>random: FAILS (seen: +30.0 points, p 0.0428)" in out and not err
    code, out, _ = run("a", "b", "--require", "b > a", "--json")  # by folder, the other way round
    assert code == 1 and json.loads(out)["requirements"][0]["why"] == ["seen: -30.0 points, p 0.0428"]


def test_holm_is_over_the_table_and_more_than_four_are_compared_with_the_first(run):
    for i in range(5):
        make(Path(f"r{i}"), set(range(10 + i)), policy=f"p{i}")
    pairs = json.loads(run(*(f"r{i}" for i in range(4)), "--json")[1])["tables"][0]["pairs"]
    assert len(pairs) == 6 and pairs[2]["found"]["p"] == 0.25 and all(pair["p_holm"] == 1 for pair in pairs)
    folders = [f"r{i}" for i in range(5)]
    pairs = json.loads(run(*folders, "--json")[1])["tables"][0]["pairs"]
    assert [(pair["a"], pair["b"]) for pair in pairs] == [("p0", f"p{i}") for i in range(1, 5)]
    pairs = json.loads(run(*folders, "--json", "--require", "p4>p1")[1])["tables"][0]["pairs"]
    assert len(pairs) == 5 and (pairs[-1]["a"], pairs[-1]["b"]) == ("p4", "p1")


def test_runs_that_differ_by_training_seed_alone_are_one_method(run):
    for seed in range(2):
        make(Path(f"s{seed}"), set(range(30 + seed)), policy="seed", seed=seed)
        make(Path(f"g{seed}"), set(range(8 + seed)), policy="grpo", seed=seed)
    code, out, err = run("s1", "g0", "s0", "g1", "--require", "seed>grpo")
    assert (code, err) == (0, "") and "required seed>grpo: holds" in out
    assert "training seeds" in out and "hierarchical" in out
    assert "seed - grpo by training seed (evaluation noise only): 0: +55.0, 22:0, p <0.0001; 1: +55.0, 22:0" in out
    make(Path("again"), set(range(3)), policy="seed", seed=1)
    code, _, err = run("s0", "s1", "g0", "again")
    assert code == 2 and "seed has two runs of training seed 1" in err.replace("s0 has", "seed has")
    code, out, _ = run("s0", "s1", "g0")
    assert code == 0 and "seed - grpo: grpo has one training seed; its training noise is in no number" in out


def test_groups_by_hand(run):
    for name, wins in (("a", 30), ("b", 29), ("c", 9), ("d", 8)):
        make(Path(name), set(range(wins)), policy=f"hf:{name}")
    code, out, err = run("--group", "new=a,b", "--group", "old=c,d", "--require", "new>old", "--json")
    found = json.loads(out)
    assert code == 0, err
    [pair] = found["tables"][0]["pairs"]
    assert pair["found"]["test"] == "hierarchical" and pair["per_seed"] == {}  # which seed pairs with which is unknown
    assert [side["name"] for side in found["tables"][0]["sides"]] == ["new", "old"]


def test_attempts_are_one_task_and_draws_are_each_their_own(run):
    def several(policy, wins):
        return [episode(i, GOOD if i < wins else BAD, policy=policy, attempt=k) for i in range(10) for k in range(3)]

    make(Path("a"), set(), policy="a", episodes=several("a", 9), attempts=3)
    make(Path("b"), set(), policy="b", episodes=several("b", 2), attempts=3)
    pair = json.loads(run("a", "b", "--json")[1])["tables"][0]["pairs"][0]
    assert (pair["found"]["n"], pair["found"]["gained"]) == (10, 7)
    for folder in (Path("a"), Path("b")):
        sign(folder, protocol={"name": "paper", "draws": 30, "replacement": True})
    table = json.loads(run("a", "b", "--json")[1])["tables"][0]
    assert (table["unit"], table["pairs"][0]["found"]["n"], table["pairs"][0]["found"]["gained"]) == ("draw", 30, 21)


def test_broken_episodes_are_failures_and_said(run):
    make(
        Path("a"),
        set(),
        policy="a",
        episodes=[episode(i, "env_error" if i < 3 else GOOD, policy="a") for i in range(9)],
    )
    make(Path("b"), set(range(9)), n=9, policy="b")
    code, out, _ = run("a", "b")
    assert code == 0 and "a: 3 of 9 episodes broke and count as failures" in out
    assert json.loads(run("a", "b", "--json")[1])["tables"][0]["sides"][0]["pooled"] == pytest.approx(6 / 9)


def test_scores(run):
    for name, scores in (("a", [0.9, 0.8, 0.7]), ("b", [0.2, 0.4, 0.1])):
        made = [episode(i, BAD, policy=name, score=score) for i, score in enumerate(scores)]
        make(Path(name), set(), policy=name, episodes=made)
    pair = json.loads(run("a", "b", "--metric", "score", "--json")[1])["tables"][0]["pairs"][0]
    assert pair["found"]["difference"] == pytest.approx(1.7 / 3)
    assert pair["found"]["p"] == 0.25 and pair["found"]["test"] == "permutation"


# --- beside the numbers ----------------------------------------------------------------------------------------------


def test_the_macro_difference_has_an_interval(run):
    make(Path("a"), set(range(30)), policy="a")
    make(Path("b"), set(range(21, 39)), policy="b")
    [table] = json.loads(run("a", "b", "--json")[1])["tables"]
    [pair] = table["pairs"]
    low, high = pair["macro_interval"]
    assert (low + high) / 2 == pytest.approx(pair["macro"]) and 0 < low < high
    assert f"{100 * low:.1f} to {100 * high:.1f}" in run("a", "b")[1]


def test_splits_whose_categories_are_apart_are_compared_together(run):
    """As in SearchQA: the mean over all categories of both splits, each with the same weight."""
    for name, wins in (("a", 8), ("b", 3)):
        apart = [episode(i, GOOD if i < wins else BAD, policy=name, category=f"set {i % 2}") for i in range(10)]
        apart += [episode(i, BAD, policy=name, split="unseen", category="set 2") for i in range(10)]
        make(Path(name), set(), policy=name, episodes=apart)
    [both] = json.loads(run("a", "b", "--json")[1])["together"]
    [pair] = both["pairs"]
    # set 0: 4/5 and 2/5; set 1: 4/5 and 1/5; set 2: none
    assert both["splits"] == ["seen", "unseen"] and both["categories"] == 3
    assert (pair["macro"], pair["pooled"]) == (pytest.approx(1 / 3), 0.25)
    low, high = pair["macro_interval"]
    assert low < 1 / 3 < high and "toy/Room-v0  seen + unseen  3 categories" in run("a", "b")[1]
    assert json.loads(run("a", "b", "--json", "--split", "seen")[1])["together"] == []


def test_ceilings_are_shown(run):
    means = {"success": 0.9, "score": 0.95}
    best = {"n": 9, "below": 1, "success": 8 / 9, "score": 0.94, "macro": means, "categories": {}}
    for name in ("a", "b"):
        folder = make(Path(name), set(range(5)), n=9, policy=name)
        state = json.loads((folder / "run.json").read_bytes())
        (folder / "run.json").write_text(json.dumps(state | {"ceilings": {"seen": best}}))
    [line] = [line for line in run("a", "b")[1].splitlines() if line.startswith("(ceiling)")]
    assert line.split() == ["(ceiling)", "9", "90.0", "88.9"]
    assert " 95.0   94.0" in run("a", "b", "--metric", "score")[1]
    assert json.loads(run("a", "b", "--json")[1])["tables"][0]["ceiling"]["below"] == 1


# --- training runs ----------------------------------------------------------------------------------------------------


def train(folder: Path, wins: int, *, seed: int = 0, method: str = "grpo", limit: int | None = None) -> Path:
    """Write a finished training run whose last evaluation won ``wins`` of 40 tasks, and whose first won none."""
    settings = Settings(
        method=method, env="toy/Room-v0", seed=seed, iterations=3, eval_limit=limit, eval_splits=("seen",)
    )
    shown = settings.model_dump(mode="json")
    rows = [{"iteration": 0}, *({"iteration": i, "env/success": 0.5} for i in (1, 2, 3))]
    write_training(folder, rows, settings=shown, digest=settings.digest)
    state = {"stage": "rl", "iteration": 3, "digest": settings.digest}
    (folder / "final" / "state.json").write_text(json.dumps(state))
    (folder / "evaluations").mkdir()
    tasks = range(40) if limit is None else range(seed, seed + limit)
    for iteration, won in ((0, 0), (3, wins)):
        lines = [episode(i, GOOD if i < won else BAD, policy=f"hf:{folder.name}").to_line() for i in tasks]
        (folder / "evaluations" / f"iteration_{iteration:06d}-seen.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_the_last_evaluation_of_training_runs_is_compared(run):
    for seed in range(2):
        train(Path(f"g{seed}"), 10 + seed, seed=seed)
        train(Path(f"s{seed}"), 30 + seed, seed=seed, method="sdar")
    code, _, err = run("g0", "s0", "g1", "s1", "--require", "sdar>grpo")
    assert (code, err) == (0, ""), err
    [table] = json.loads(run("g0", "s0", "g1", "s1", "--json")[1])["tables"]
    assert [(side["name"], side["seeds"], side["pooled"]) for side in table["sides"]] == [
        ("grpo", ["0", "1"], 10.5 / 40),
        ("sdar", ["0", "1"], 30.5 / 40),
    ]
    played = [episode(i, policy="random") for i in range(40)]
    for name, kwargs in (("eval", {"split": "seen"}), ("said", {"split": "seen", "data": "embedded"})):
        make(Path(name), set(), policy="random", episodes=changed(played, kwargs=kwargs))
        assert run("g0", name)[0] == 0, name  # the same tasks, turn limit and protocol; harness.eval names its data


def test_an_evaluation_by_a_splits_other_name_is_compared(run):
    for seed, name in enumerate("ab"):
        folder = train(Path(name), 9 + seed, seed=seed)
        for path in (folder / "evaluations").iterdir():
            lines = [episode(i, GOOD if i < 9 + seed else BAD, split="valid_seen").to_line() for i in range(40)]
            path.write_text("\n".join(lines) + "\n")  # eval_splits=seen, as ALFWorld takes it too
    code, out, err = run("--group", "x=a", "--group", "y=b")
    assert code == 0 and "valid_seen" in out, err


def test_training_runs_that_cannot_be_compared(run):
    good = train(Path("good"), 9)
    for seed in (1, 2):
        train(Path(f"few{seed}"), 5, seed=seed, limit=20)
    said = run("few1", "few2", "--group", "x=good")[2]
    assert "are of 20 drawn tasks: play " in said and "with harness.eval, or train with eval_limit" in said
    (train(Path("begun"), 3, seed=3) / "final" / "DONE").unlink()
    assert "the training in begun is not finished (3 iterations)" in run("good", "begun")[2]
    last = "evaluations/iteration_000003-seen.jsonl"
    for name, content, expected in (
        ("none", None, "the training in none has no evaluation; evaluate none/final with harness.eval"),
        ("binary", b"\xff\xfe\n", "seen.jsonl:1: 'utf-8' codec can't decode"),
        (
            "foreign",
            episode(1, split="unseen").to_line().encode() + b"\n",
            "holds episodes of unseen; expected those of seen",
        ),
    ):
        folder = train(Path(name), 3, seed=4, method="sdar")
        if content is None:
            shutil.rmtree(folder / "evaluations")
        else:
            (folder / last).write_bytes(content)
        code, out, err = run(good, folder)
        assert (code, out) == (2, "") and err.count("\n") == 1 and expected in err, err
    state = json.loads((good / "train.json").read_bytes())
    del state["settings"]["seed"]
    (good / "train.json").write_text(json.dumps(state))
    assert "holds no training run of this program" in run("few1", "good")[2]


# --- what is refused --------------------------------------------------------------------------------------------------


def changed(episodes, **env):
    return [e.model_copy(update={"env": e.env.model_copy(update=env)}) for e in episodes]


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"manifest_sha256": "other"}, "other manifest"),
        ({"max_turns": 9}, "turn limit 8 and 9"),
        ({"data_sha256": "corpus"}, "other data"),
        ({"version": "2"}, 'environment version "1" and "2"'),
        ({"kwargs": {"split": "seen", "size": 3}}, 'environment arguments {} and {"size":3}'),
    ],
)
def test_what_was_not_the_same_is_not_compared(run, env, said):
    make(Path("a"), set(range(5)), n=9)
    make(Path("b"), set(), policy="b", episodes=changed([episode(i, policy="b") for i in range(9)], **env))
    code, out, err = run("a", "b")
    assert (code, out) == (2, "") and len(err.splitlines()) == 1
    assert err.startswith(f"error: a and b cannot be compared in seen: {said}")


def test_other_tasks_protocols_and_splits_are_not_compared(run):
    make(Path("a"), set(range(5)), n=9)
    make(Path("b"), set(range(5)), n=8, policy="b")
    assert "cannot be compared in seen: other tasks" in run("a", "b")[2]
    make(Path("c"), set(range(5)), n=9, policy="c", protocol={"name": "paper", "draws": 9, "replacement": False})
    assert 'protocol {"name":"full"} and {"draws":9,"name":"paper"' in run("a", "c")[2]
    make(Path("d"), set(), policy="d", episodes=[episode(i, split="unseen", policy="d") for i in range(9)])
    assert "share no split" in run("a", "d")[2]
    both = [episode(i, policy="e", split=split) for split in ("seen", "unseen") for i in range(9)]
    make(Path("e"), set(), policy="e", episodes=both)
    code, out, _ = run("a", "e")
    assert code == 0 and "not compared, since not all have played it: unseen" in out


def spoil(folder: Path, how: str) -> None:
    path = folder / "trajectories.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    record = json.loads(lines[2])
    if how == "torn":
        lines[-1] = lines[-1][:-20]
    elif how == "double":
        lines.append(lines[0])
    elif how == "newer":
        lines[2] = canonical({**record, "schema_version": 99}) + "\n"
    elif how == "mixed":
        lines[2] = canonical({**record, "env": {**record["env"], "manifest_sha256": "x"}}) + "\n"
    else:
        lines[2] = lines[2].replace('"score":1.0', f'"score":{how}')
    path.write_text("".join(lines))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("torn", "bad/trajectories.jsonl:9: not an episode record"),
        ("double", "is recorded twice"),
        ("newer", "trajectories.jsonl:3: the record has schema version 99; this version reads up to 1: pip install"),
        ("mixed", "2 manifests or settings"),
        ("NaN", "trajectories.jsonl:3: not an episode record"),
        ("null", "trajectories.jsonl:3: not an episode record: score"),
        ("85.0", "less than or equal to 1"),
    ],
)
def test_damaged_records_are_one_line(run, how, said):
    make(Path("good"), set(range(5)), n=9)
    spoil(make(Path("bad"), set(range(9)), n=9, policy="b"), how)
    code, out, err = run("good", "bad")
    assert (code, out) == (2, "") and len(err.splitlines()) == 1 and said in err, err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["a"], "there is 1 method to compare"),
        (["a", "a"], "a is named twice"),
        (["a", "nowhere"], "there is no run in nowhere"),
        (["a", "b", "--require", "a>c"], "unknown method 'c'"),
        (["a", "b", "--require", "a=b"], 'expected "A>B"'),
        (["a", "b", "--require", "a>good"], "compares good with itself"),
        (["a", "b", "--alpha", "5"], "--alpha 5 cannot be used"),
        (["a", "--group", "x"], "expected NAME=RUN,RUN"),
        (["a", "b", "--split", "unseen"], "share no split"),
        (["a", "b", "--split", ""], "--split has an empty name; expected names separated by commas"),
        (["a", "edited"], "its configuration has another digest"),
        (["a", "odd"], "odd/run.json is not as it was written: config.protocol.name: Input should be a valid string"),
        (["a", "of another"], "trajectories.jsonl is not of the run that of another/run.json describes"),
        (["a", "b", "--metric", "turns"], "invalid choice"),
        (["a", "unfinished"], "the run in unfinished is interrupted, not finished; repeat its command"),
        (["a", "altered"], "altered/summary.json is not as it was written"),
        (["--group", "x=a,twin", "b"], "x has two runs with equal records"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(run, args, said):
    for name, policy in (("a", "good"), ("b", "b"), ("altered", "c"), ("twin", "good")):
        make(Path(name), set(range(5)), n=9, policy=policy)
    Path("altered/summary.json").write_text("{}")
    sign(make(Path("odd"), set(range(5)), n=9, policy="d"), protocol={"name": 5} if "odd" in args else {"name": "full"})
    for name, change in (("edited", {"seed": 9}), ("of another", {"policy": "someone else's"})):
        folder = make(Path(name), set(range(5)), n=9, policy=name)
        state = json.loads((folder / "run.json").read_bytes())
        state["config"] |= change
        if name == "of another":
            state["digest"] = sha256_text(canonical(state["config"]))
        (folder / "run.json").write_text(json.dumps(state))
    write_run(Path("unfinished"), [episode(i) for i in range(9)], missing=3, status="interrupted")
    code, out, err = run(*args)
    assert (code, out) == (2, "") and len(err.splitlines()) == 1 and said in err, err
