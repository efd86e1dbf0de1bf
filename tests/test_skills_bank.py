"""Skill-SD's bank: UCB in numbers, ties and bounds decided, files that survive."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seed_agent.skills.bank import SkillBank
from seed_envs.errors import ConfigError, DataError
from seed_envs.seeding import canonical


def bank_of(*tries: tuple[float, ...], c: float = 1.0) -> SkillBank:
    """A bank with one entry per argument, tried with these rewards."""
    bank = SkillBank(c=c)
    for number, rewards in enumerate(tries):
        assert bank.add("k", f"Skill {number}.") == number
        for reward in rewards:
            assert bank.update("k", number, reward)
    return bank


def chosen(bank: SkillBank, *keys: str) -> int:
    found = bank.choose(*(keys or ("k",)))
    assert found is not None
    return found[1].id


@pytest.mark.parametrize(
    ("tries", "c", "winner"),
    [
        ([(1.0,), (), ()], 1.0, 1),  # untried first, the oldest of them
        ([(1.0,), (0.0,)], 1.0, 0),  # 1 + sqrt(ln 2) against 0 + sqrt(ln 2)
        ([(1.0,) * 9, (0.5,)], 1.0, 1),  # 1 + sqrt(ln 10 / 9) = 1.506 against 0.5 + sqrt(ln 10) = 2.017
        ([(1.0,) * 9, (0.5,)], 0.3, 0),  # 1.152 against 0.955
        ([(1.0,) * 9, (0.5,)], 0.0, 0),
        ([(0.5,), (0.5,)], 1.0, 0),  # a tie goes to the older
        ([(0.0,), (1.0, 0.0, 1.0, 0.0)], 0.0, 1),
    ],
)
def test_the_largest_upper_bound_is_chosen(tries: list[tuple[float, ...]], c: float, winner: int) -> None:
    bank = bank_of(*tries, c=c)
    assert chosen(bank) == winner
    assert chosen(bank) == winner, "choosing changes nothing"


def test_the_bound_is_mean_plus_c_times_the_root_of_ln_n_over_n() -> None:
    # Entry 0: mean 0.8 of 5 tries; entry 1: mean 0.2 of 1. They are equal at this c.
    c = 0.6 / (math.sqrt(math.log(6)) - math.sqrt(math.log(6) / 5))
    assert chosen(bank_of((0.8,) * 5, (0.2,), c=c * 0.999)) == 0
    assert chosen(bank_of((0.8,) * 5, (0.2,), c=c * 1.001)) == 1


def test_the_first_key_with_skills_counts() -> None:
    bank = bank_of((1.0,))
    assert bank.choose("none", "k")[0] == "k"  # type: ignore[index]
    bank.add("none", "Now there is one.")
    assert bank.choose("none", "k")[0] == "none"  # type: ignore[index]
    assert bank.choose("other") is None and bank.choose() is None


def test_equal_texts_are_one_entry_and_nothing_is_no_entry() -> None:
    bank = SkillBank()
    assert bank.add("k", "Heat  it\n first.") == 0
    assert bank.add("k", "Heat it first.") == 0
    assert bank.add("k", "None") is None and bank.add("k", "") is None
    assert [entry.text for entry in bank.entries("k")] == ["Heat it first."]
    assert bank.add("k", "Say <action>.") == 1 and bank.entries("k")[1].text == "Say (action)."


def test_a_full_key_gives_up_the_worst_that_was_tried() -> None:
    bank = SkillBank(per_key=3)
    for number in range(3):
        bank.add("k", f"Skill {number}.")
    bank.update("k", 0, 0.9)
    bank.update("k", 1, 0.1)
    assert bank.add("k", "Skill 3.") == 3
    assert [entry.id for entry in bank.entries("k")] == [0, 2, 3]
    assert not bank.update("k", 1, 1.0), "a reward for what is gone counts nowhere"
    assert bank.add("k", "Skill 4.") == 4  # ids are never used again
    assert [entry.id for entry in bank.entries("k")] == [2, 3, 4]
    assert bank.add("k", "Skill 5.") == 5  # none was tried: the oldest goes
    assert [entry.id for entry in bank.entries("k")] == [3, 4, 5]


def test_a_full_bank_gives_up_the_key_added_to_longest_ago() -> None:
    bank = SkillBank(max_keys=2)
    for key in ("a", "b", "a", "c"):
        bank.add(key, f"Skill of {key}.")
    assert [len(bank.entries(key)) for key in "abc"] == [1, 0, 1]


def test_entries_are_copies() -> None:
    bank = bank_of((1.0,))
    bank.entries("k")[0].tries = 99
    bank.choose("k")[1].total = 99.0  # type: ignore[index]
    assert bank.entries("k")[0].tries == 1 and bank.entries("k")[0].mean == 1.0


WORDS = st.sampled_from(["Heat.", "Cool.", "Clean.", "Look.", "None"])
DEEDS = st.lists(st.tuples(st.sampled_from("abcd"), WORDS, st.integers(0, 6), st.floats(-1, 1)), max_size=40)


@given(DEEDS)
def test_it_stays_bounded_and_its_file_holds_everything(deeds: list[tuple[str, str, int, float]]) -> None:
    bank = SkillBank(per_key=2, max_keys=3)
    for key, word, number, reward in deeds:
        bank.add(key, word)
        bank.update(key, number, reward)
    again = SkillBank.from_json(bank.to_json())
    assert again.to_json() == bank.to_json() == canonical(json.loads(bank.to_json()))
    assert len(bank) <= 6 and all(len(bank.entries(key)) <= 2 for key in "abcd")
    for key in "abcd":
        assert again.choose(key) == bank.choose(key)
        assert again.add(key, "Something new.") == bank.add(key, "Something new.")
    assert again.to_json() == bank.to_json()


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    bank = bank_of((1.0, 0.5), ())
    bank.save(tmp_path / "bank.json")
    assert SkillBank.load(tmp_path / "bank.json").to_json() == bank.to_json()
    with pytest.raises(DataError, match="cannot read"):
        SkillBank.load(tmp_path / "missing.json")


GOOD = bank_of((1.0,)).to_json()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        "null",
        GOOD[:-9],
        GOOD.replace('"id":0', '"id":"0"'),
        GOOD.replace('"per_key":16', '"per_key":0'),
        GOOD.replace('"version":1', '"version":2'),
        GOOD.replace('"tries":1', '"trials":1'),
    ],
)
def test_what_is_no_bank_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="skill bank"):
        SkillBank.from_json(text)


@pytest.mark.parametrize("wrong", [{"c": -1.0}, {"c": math.nan}, {"c": math.inf}, {"per_key": 0}, {"max_keys": 0}])
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="skill bank cannot have"):
        SkillBank(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_a_reward_that_is_no_number_is_refused(reward: float) -> None:
    with pytest.raises(ConfigError, match="finite"):
        bank_of(()).update("k", 0, reward)
