"""The HTML report without a browser: what it says, what it holds, what it refuses."""

import base64
import hashlib
import json
import re
import shutil
import zlib
from html.parser import HTMLParser
from pathlib import Path

import eval_plugin  # noqa: F401  (registers the environment and policies)
import pytest
from report_runs import COMMAND, HOSTILE, episode, hostile, mixed, save_image, turn, with_images, write_run

from harness import eval, report
from harness.html import packing, page, reading
from harness.report import write_report
from harness.summary import summarise
from harness.table import number, percent
from seed_agent.trajectory import OUTCOMES, Image, Seen
from seed_envs.errors import ConfigError, DataError


class Parsed(HTMLParser):
    """A page as tags with attributes, its visible text, and its scripts by id."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.raw: dict[str, str] = {}
        self._texts: list[str] = []
        self._inside: str | None = None
        self.feed(content)
        self.text = re.sub(r"\s+", " ", " ".join(self._texts).replace("\xa0", " "))

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._inside = (dict(attrs).get("id") or tag) if tag in ("script", "style") else None

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside is None:
            self._texts.append(data)
        else:
            self.raw[self._inside] = self.raw.get(self._inside, "") + data


def parsed(folder: Path) -> Parsed:
    return Parsed(write_report(folder).read_text(encoding="utf-8"))


def index(found: Parsed) -> dict:
    return json.loads(found.raw["index"])


def unpacked(found: Parsed) -> list[dict]:
    """Return the embedded episodes as the browser sees them."""
    chunks = [found.raw[name] for name in found.raw if name.startswith("chunk-")]
    return [e for chunk in chunks for e in json.loads(zlib.decompress(base64.b64decode(chunk)))]


# --- what it says -----------------------------------------------------------------------------------------------------


def test_the_headline_names_pooled_and_macro_and_their_numbers(tmp_path):
    episodes = mixed(60) + mixed(41, "unseen")
    text = parsed(write_run(tmp_path / "run", episodes)).text
    for split in summarise(episodes)["splits"].values():
        low, high = split["success"]["ci95"]
        pooled = (
            f"{percent(split['pooled']['success'])} success, pooled 95 % interval {100 * low:.1f} to {100 * high:.1f}"
        )
        assert pooled in text
        assert f"{percent(split['macro']['success'])} success, macro mean of 3 categories" in text
        assert f"{number(split['score'])} score macro {number(split['macro']['score'])}" in text
        rates = split["turn_rates"]
        assert f"ill-formed {percent(rates['ill_formed'])} inadmissible {percent(rates['inadmissible'])}" in text
        assert f"ineffective {percent(rates['ineffective'])} cut replies {percent(rates['truncated_reply'])}" in text
        late = split["outcomes"]["step_limit"] / split["n"]
        assert f"out of turns {percent(late)} errors 0.0 % mean turns {split['turns']['mean']:.1f}" in text
        for name, category in split["categories"].items():
            assert f"{name} {category['n']} {percent(category['success']['rate'])}" in text
    assert "openai:tiny" in text and "at most 8 turns" in text and "not finished" not in text and "broke" not in text


def test_bars_stand_where_the_numbers_are(tmp_path):
    found = parsed(write_run(tmp_path / "run", [episode(0), episode(3), episode(6, "failure"), episode(9, "failure")]))
    circles = [attrs["cx"] for tag, attrs in found.tags if tag == "circle"]
    assert circles == ["50.00%"] * 3  # the card, the pooled row, the one category
    low, high = summarise([episode(0), episode(3), episode(6, "failure"), episode(9, "failure")])["splits"]["seen"][
        "success"
    ]["ci95"]
    lines = [(attrs["x1"], attrs["x2"]) for tag, attrs in found.tags if tag == "line" and attrs["class"] == "interval"]
    assert lines == [(f"{100 * low:.2f}%", f"{100 * high:.2f}%")] * 3


def test_what_is_not_known_is_a_dash(tmp_path):
    silent = [turn(admissible=None, effective=None)]
    text = parsed(write_run(tmp_path / "run", [episode(0, turns=silent)])).text
    assert "ill-formed 0.0 % inadmissible - ineffective - cut replies 0.0 %" in text


def test_an_unfinished_run_says_so_and_shows_no_score(tmp_path):
    text = parsed(write_run(tmp_path / "run", mixed(20), missing=30, status="interrupted")).text
    assert "This run is not finished. 20 of 50 episodes are here (status: interrupted)" in text
    assert "no result yet" in text and "20 of 50 episodes" in text
    assert "interval" not in text and "pooled" not in text and "macro" not in text
    empty = parsed(write_run(tmp_path / "empty", [], missing=5, status="started"))
    assert "0 of 5 episodes are here" in empty.text and "No episode has ended yet" in empty.text
    assert index(empty)["rows"] == []


def test_a_split_that_has_too_many_does_not_hide_one_that_has_too_few(tmp_path):
    run = write_run(tmp_path / "run", [episode(0), episode(1), episode(0, split="unseen")])
    state = json.loads((run / "run.json").read_bytes())
    state["config"]["splits"]["seen"]["tasks"], state["config"]["splits"]["unseen"]["tasks"] = 1, 2
    (run / "run.json").write_text(json.dumps(state))
    assert "This run is not finished" in parsed(run).text


def test_a_run_that_was_not_closed_says_so(tmp_path):
    text = parsed(write_run(tmp_path / "run", mixed(10), status="started")).text
    assert "This run was not closed." in text and "success, pooled" in text


def test_episodes_that_broke_are_loud_and_count_as_failures(tmp_path):
    episodes = [episode(0), episode(1, "env_error"), episode(2, "policy_error"), episode(3)]
    text = parsed(write_run(tmp_path / "run", episodes)).text
    assert "2 of 4 episodes broke. They count as failures (2 RuntimeError)" in text
    assert "50.0 % success, pooled" in text and "errors 50.0 %" in text


def test_a_broken_episode_that_was_played_again_counts_once(tmp_path):
    found = parsed(write_run(tmp_path / "run", [episode(0, "env_error"), episode(1), episode(0)]))
    assert "broke" not in found.text and len(index(found)["rows"]) == 2
    assert [e["error"] for e in unpacked(found)] == [None, None]


def test_a_torn_last_line_does_not_count(tmp_path):
    run = write_run(tmp_path / "run", mixed(9), missing=1, status="started")
    with (run / "trajectories.jsonl").open("a") as file:
        file.write(episode(9).to_line()[:200])
    text = parsed(run).text
    assert "The last record is torn" in text and "9 of 10 episodes are here" in text


def test_a_summary_that_is_not_of_these_records_is_reported(tmp_path):
    run = write_run(tmp_path / "run", mixed(10))
    assert "does not match" not in parsed(run).text
    changed = (run / "summary.json").read_text().replace('"count": 6', '"count": 7')
    (run / "summary.json").write_text(changed)
    text = parsed(run).text
    assert "summary.json does not match the records" in text and "60.0 % success, pooled" in text


def test_several_attempts_are_named(tmp_path):
    episodes = [episode(i, "success" if (i + k) % 2 else "failure", attempt=k) for i in range(4) for k in range(2)]
    run = write_run(tmp_path / "run", episodes)
    state = json.loads((run / "run.json").read_bytes())
    state["config"]["attempts"], state["config"]["splits"]["seen"]["tasks"] = 2, 4
    (run / "run.json").write_text(json.dumps(state))
    text = parsed(run).text
    assert (
        re.search("8 episodes, 4 tasks . 2 attempts", text)
        and "pass@2 100.0 %, pass^2 0.0 %; intervals by task" in text
    )


def test_where_it_comes_from(tmp_path):
    run = write_run(tmp_path / "run", mixed(10), language={"template_sha256": "fed0" * 16})
    text = parsed(run).text
    assert COMMAND in text and "c0ffee" in text and "with changes that are not committed" in text
    for part in ("splits.seen.manifest_sha256 m-seen", "seed-suite 0.1.0", "python 3.11.7", "fed0" * 16, "d1" * 32):
        assert part in text
    assert summarise(mixed(10))["records_sha256"] in text


# --- what it holds ----------------------------------------------------------------------------------------------------


def test_every_turn_is_there(tmp_path):
    episodes = [*mixed(60), episode(60, "policy_error"), episode(61, turns=(turn(token_ids=(1, 2, 3)),))]
    found = parsed(write_run(tmp_path / "run", episodes))
    rows, embedded = index(found)["rows"], unpacked(found)
    by_id = {e.task_id: e for e in episodes}
    assert [row[2] for row in rows] == sorted(by_id)
    for row, shown in zip(rows, embedded, strict=True):
        real = by_id[row[2]]
        assert OUTCOMES[row[4]] == real.outcome and row[5:7] == [real.score, len(real.turns)]
        assert row[7] == sum(not t.format_ok for t in real.turns)
        assert shown["seed"] == str(real.seed)
        assert shown["error"] == (f"{real.error.type}: {real.error.message}" if real.error else None)
        assert (shown["final"] or {}).get("text") == (real.final.text if real.final else None)
        for turned, true in zip(shown["turns"], real.turns, strict=True):
            assert turned["seen"]["text"] == true.observation.text
            assert (turned["reply"], turned["action"], turned["reason"]) == (true.reply, true.action, true.reason)
            assert turned["wellFormed"] is true.format_ok and turned["cut"] is (true.stop_reason == "length")
            assert (turned["admissible"], turned["effective"]) == (true.admissible, true.effective)
            assert turned["reward"] == true.reward
            assert turned["tokens"] == (None if true.token_ids is None else len(true.token_ids))
    assert rows[0][11] == "put a apple in fridge."
    assert len([name for name in found.raw if name.startswith("chunk-")]) == 3


def test_an_instruction_that_all_tasks_share_is_not_listed(tmp_path):
    same = [episode(i, instruction="Push every box onto a target.") for i in range(3)]
    assert [row[11] for row in index(parsed(write_run(tmp_path / "same", same)))["rows"]] == [""] * 3
    other = [*same, episode(3, instruction="Elsewhere.")]
    assert index(parsed(write_run(tmp_path / "other", other)))["rows"][1][11] == "Elsewhere."


def test_images_are_embedded_once(tmp_path):
    run = tmp_path / "run"
    found = parsed(write_run(run, with_images(run, mixed(30))))
    packs = [found.raw[name].split("\n") for name in found.raw if name.startswith("images-")]
    embedded = [base64.b64decode(content) for pack in packs for content in pack]
    assert {hashlib.sha256(content).hexdigest() for content in embedded} == {p.stem for p in run.glob("images/*.png")}
    assert len(embedded) == 4  # 30 episodes of up to four turns use four pictures
    numbers = {n for e in unpacked(found) for t in e["turns"] for n in t["seen"]["images"]}
    assert numbers == set(range(4))


def test_images_that_are_not_what_they_are_named_are_left_out(tmp_path):
    run = tmp_path / "run"
    altered, missing = save_image(run, 1), save_image(run, 2)
    nameless = Image(file_sha256="../\0", pixels_sha256="x")
    (run / "images" / f"{altered.file_sha256}.png").write_bytes(b"other")
    (run / "images" / f"{missing.file_sha256}.png").unlink()
    kept = save_image(run, 3)
    turns = [turn(observation=Seen.of("x", (image,))) for image in (altered, missing, nameless, kept)]
    found = parsed(write_run(run, [episode(0, turns=tuple(turns))]))
    contents = found.raw["images-0"].split("\n")
    assert contents[:3] == ["", "", ""] and base64.b64decode(contents[3]).startswith(b"\x89PNG")


def test_a_large_run_embeds_a_part_and_says_so(tmp_path, monkeypatch):
    run = write_run(tmp_path / "run", mixed(60) + mixed(40, "unseen"))
    monkeypatch.setattr(packing, "MAX_EPISODES", 10)
    found = parsed(run)
    assert "This page holds 10 of 100 episodes" in found.text
    assert "the other 90 are in trajectories.jsonl beside it" in found.text
    assert [found.text.count(f"{n} episodes") for n in (60, 40)] == [1, 1]  # the numbers are over all
    splits = [index(found)["splits"][row[0]] for row in index(found)["rows"]]
    assert splits == ["seen"] * 6 + ["unseen"] * 4 and len(unpacked(found)) == 10
    monkeypatch.setattr(packing, "MAX_EPISODES", 1000)
    size = packing.pack(reading.read(run)).size
    monkeypatch.setattr(packing, "MAX_BYTES", size // 3)
    small = packing.pack(reading.read(run))
    assert 0 < small.embedded < 50 and small.size <= size // 3
    monkeypatch.setattr(packing, "MAX_BYTES", 1)
    assert packing.pack(reading.read(run)).embedded == 1


def test_the_page_is_a_pure_function_of_the_files(tmp_path, run_cli):
    run = tmp_path / "run"
    write_run(run, with_images(run, mixed(30)))
    content = write_report(run).read_bytes()
    assert write_report(run).read_bytes() == content  # report.html itself is no input
    copy = tmp_path / "elsewhere" / "copy"
    shutil.copytree(run, copy)
    (copy / "report.html").unlink()
    for seed in ("0", "1"):
        code, out, err = run_cli("harness.report", copy, env={"PYTHONHASHSEED": seed})
        assert (code, out, err) == (0, f"{copy / 'report.html'}\n", "")
        assert (copy / "report.html").read_bytes() == content
    assert str(tmp_path).encode() not in content


# --- what it must never do --------------------------------------------------------------------------------------------


def test_the_page_is_self_contained_and_its_policy_strict(tmp_path):
    run = tmp_path / "run"
    found = parsed(write_run(run, with_images(run, mixed(30))))
    policies = [a["content"] for tag, a in found.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert len(policies) == 1
    rules = dict(rule.split(" ", 1) for rule in policies[0].split("; "))
    hashes = {
        kind: f"'sha256-{base64.b64encode(hashlib.sha256(found.raw[kind].encode()).digest()).decode()}'"
        for kind in ("script", "style")
    }
    assert rules == {
        "default-src": "'none'", "script-src": hashes["script"], "style-src": hashes["style"], "img-src": "data:",
        "base-uri": "'none'", "form-action": "'none'",
    }  # fmt: skip
    for tag, attributes in found.tags:
        assert not [name for name in attributes if name.startswith("on") or name in ("style", "src", "srcset")], tag
        assert attributes.get("href", "#").startswith("#"), attributes
    assert [tag for tag, _ in found.tags if tag in ("link", "iframe", "object", "embed", "base", "img")] == []
    assert not re.search(r"@import|url\(", found.raw["style"])


def test_hostile_texts_add_no_tag(tmp_path):
    plain = [e.model_copy(update={"split": f"s{i}", "category": f"c{i}"}) for i, e in enumerate(hostile())]
    tame = [tag for tag, _ in parsed(write_run(tmp_path / "tame", plain)).tags]
    text = HOSTILE[0]
    bad = parsed(
        write_run(
            tmp_path / "bad",
            hostile(),
            digest=text,
            options={text: text},
            provenance=[{"command": text, "git_commit": text, "python": text, "packages": {text: text}, text: text}],
            **{"more": {text: HOSTILE[1]}},
        )
    )
    tags = [tag for tag, _ in bad.tags]
    extra = ["details", "summary"]  # for "more"
    assert sorted(set(tags)) == sorted(set(tame))
    assert [tags.count(tag) - tame.count(tag) for tag in ("script", "svg", "img", "b", *extra)] == [0, 0, 0, 0, 1, 1]
    shown = re.sub(r"\s+", " ", packing.visible(HOSTILE[4]))
    for hostile_text in (*HOSTILE[:4], shown):
        assert bad.text.count(hostile_text) >= 3, hostile_text  # card, two rows of the table
    rows, episodes = index(bad)["rows"], unpacked(bad)
    assert len(rows) == len(episodes) == len(HOSTILE)
    for row, found in zip(rows, episodes, strict=True):
        original = packing.visible(HOSTILE[int(row[2][0])])
        only = found["turns"][0]
        assert row[2] == f"{row[2][0]} {original}" and original == only["seen"]["text"] == only["action"]
        assert only["reply"] == f"<think>{original}</think><action>{original}</action>"
    assert "<" not in bad.raw["index"] and "&" not in bad.raw["index"] and bad.raw["index"].isascii()


def test_hidden_characters_are_spelled_out():
    assert packing.visible("a\x00b\r\nc\rd\t\u202e\u2028\ud800é😀👩‍🔬\n") == (
        "a⟨U+0000⟩b\nc⟨U+000D⟩d\t⟨U+202E⟩⟨U+2028⟩⟨U+D800⟩é😀👩‍🔬\n"
    )


def test_the_script_never_makes_html_of_text():
    folder = Path(page.__file__).parent
    script = (folder / "report.js").read_text(encoding="utf-8")
    for way in (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "Function(",
        "fetch(",
        "</script",
    ):
        assert way not in script
    assert len(script.splitlines()) < 350
    assert len((folder / "report.css").read_text(encoding="utf-8").splitlines()) < 250


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def command(capsys):
    def run(*args):
        code = report.main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_the_command_writes_a_page_per_run(tmp_path, command):
    runs = [write_run(tmp_path / name, mixed(10)) for name in ("a", "b")]
    assert command(*runs) == (0, f"{runs[0] / 'report.html'}\n{runs[1] / 'report.html'}\n", "")
    target = tmp_path / "page.html"
    assert command(runs[0], "--out", target) == (0, f"{target}\n", "")
    assert target.read_bytes() == (runs[0] / "report.html").read_bytes()


def test_bad_input_is_one_line_and_exit_code_2(tmp_path, command):
    def refused(*args):
        code, out, err = command(*args)
        assert (code, out) == (2, "") and err.count("\n") == 1 and err.startswith("error: ")
        return err

    run = write_run(tmp_path / "run", mixed(10))
    assert "no run" in refused(tmp_path / "nowhere") and "no run" in refused(tmp_path / "run" / "trajectories.jsonl")
    (tmp_path / "empty").mkdir()
    assert "holds no run.json" in refused(tmp_path / "empty")
    assert "--out names one file" in refused(run, run, "--out", tmp_path / "x.html")
    assert "is named twice (also as" in refused(run, tmp_path / "empty" / ".." / "run")
    assert "cannot write" in refused(run, "--out", tmp_path / "no" / "such" / "x.html")
    lines = (run / "trajectories.jsonl").read_text().splitlines()
    (run / "trajectories.jsonl").write_text("\n".join([lines[0], "{}", *lines[2:]]) + "\n")
    assert "trajectories.jsonl:2: not an episode record" in refused(run)
    (run / "trajectories.jsonl").write_text(f"{lines[0]}\n{lines[0]}\n")
    assert refused(run).endswith("is recorded twice; remove the line or play the run again\n")
    (run / "trajectories.jsonl").write_text(json.dumps({**json.loads(lines[0]), "schema_version": 99}) + "\n")
    assert refused(run).endswith("pip install -U seed-suite (in a checkout: git pull)\n")
    state = json.loads((run / "run.json").read_bytes())
    del state["config"]["attempts"]
    (run / "run.json").write_text(json.dumps(state))
    assert "run.json is damaged" in refused(run)
    (run / "run.json").write_text("{")
    assert "cannot be read" in refused(run)


def test_errors_are_of_the_suite(tmp_path):
    with pytest.raises(ConfigError, match="is no run"):
        write_report(tmp_path)
    run = write_run(tmp_path / "run", mixed(3))
    (run / "trajectories.jsonl").write_bytes(b"\xff\n")
    with pytest.raises(DataError, match=r"trajectories\.jsonl:1"):
        write_report(run)


def test_the_report_of_a_real_run(tmp_path, capsys):
    run = tmp_path / "run"
    args = ["--env", "evaltoy/Spell-v0", "--set", "size=9", "--set", "image=true", "--policy", "spell:wavers"]
    assert eval.main([*args, "--attempts", "2", "--out", str(run)]) == 0
    capsys.readouterr()
    found = parsed(run)
    summary = json.loads((run / "summary.json").read_bytes())
    assert summary["records_sha256"] in found.text and "evaltoy/Spell-v0" in found.text
    for split in summary["splits"].values():
        assert f"{percent(split['success']['rate'])} success, pooled" in found.text
    assert len(index(found)["rows"]) == summary["n"] == 36
    assert sum(len(e["turns"]) for e in unpacked(found)) == sum(s["turns"]["total"] for s in summary["splits"].values())
    images = [content for name in found.raw if name.startswith("images-") for content in found.raw[name].split("\n")]
    assert len(images) == len(list(run.glob("images/*.png"))) > 1 and all(images)
