"""``python -m harness.compare``: what it says, what it refuses, and what it takes for one method."""

import json
from pathlib import Path

import pytest
from report_runs import episode, write_run

from harness.compare import main
from seed_envs.seeding import canonical

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
    (folder / "run.json").write_text(json.dumps(state))
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
    for folder in (Path("a"), Path("b")):
        state = json.loads((folder / "run.json").read_bytes())
        state["config"]["splits"]["seen"] |= {"tasks": 10, "episodes": 30}
        (folder / "run.json").write_text(json.dumps(state))
    pair = json.loads(run("a", "b", "--json")[1])["tables"][0]["pairs"][0]
    assert (pair["found"]["n"], pair["found"]["gained"]) == (10, 7)
    for folder in (Path("a"), Path("b")):
        state = json.loads((folder / "run.json").read_bytes())
        state["config"]["protocol"] = {"name": "paper", "draws": 30, "replacement": True}
        (folder / "run.json").write_text(json.dumps(state))
        found = json.loads((folder / "summary.json").read_bytes())
        (folder / "summary.json").write_text(json.dumps({**found, "protocol": "paper"}, indent=2) + "\n")
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
    found = json.loads(Path("c/summary.json").read_bytes())
    Path("c/summary.json").write_text(json.dumps({**found, "protocol": "paper"}, indent=2) + "\n")
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
        ("torn", "the run in bad is not finished (8 of 9 episodes); repeat its command"),
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
        (["a", "nowhere"], "nowhere is no run"),
        (["a", "b", "--require", "a>c"], "unknown method 'c'"),
        (["a", "b", "--require", "a=b"], 'expected "A>B"'),
        (["a", "b", "--require", "a>good"], "compares good with itself"),
        (["a", "b", "--alpha", "5"], "--alpha 5 cannot be used"),
        (["a", "--group", "x"], "expected NAME=RUN,RUN"),
        (["a", "b", "--split", "unseen"], "share no split"),
        (["a", "b", "--metric", "turns"], "invalid choice"),
        (["a", "unfinished"], "the run in unfinished is not finished (9 of 12 episodes)"),
        (["a", "altered"], "the records in altered changed since the run was finished"),
        (["--group", "x=a,twin", "b"], "x has two runs with equal records"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(run, args, said):
    for name, policy in (("a", "good"), ("b", "b"), ("altered", "c"), ("twin", "good")):
        make(Path(name), set(range(5)), n=9, policy=policy)
    Path("altered/summary.json").write_text("{}")
    write_run(Path("unfinished"), [episode(i) for i in range(9)], missing=3, status="interrupted")
    code, out, err = run(*args)
    assert (code, out) == (2, "") and len(err.splitlines()) == 1 and said in err, err
