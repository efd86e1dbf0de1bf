"""Seeds and draws are fixed for ever: a change here changes every task and every result."""

import subprocess
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest

from seed_envs.seeding import Draws, below, canonical, derive, sha256_text

# printf '["episode","0","train/07","2"]' | sha256sum, and so on: worked out without this package
EPISODE = 0xECEB344DC2CD3BCA >> 1
NOTHING = 0x4F53CDA18C2BAA0C >> 1
NAME = [0x9598512517AD2D50, 0xE641136FF9F3CBA8]


def test_derive_is_half_a_sha256_of_the_parts() -> None:
    assert derive("episode", 0, "train/07", 2) == EPISODE
    assert derive() == NOTHING
    assert derive("ab", "c") != derive("a", "bc"), "parts do not run together"
    assert derive(1) == derive("1")
    assert 0 <= derive("\ud800") < 1 << 63


def test_draws_are_sha256_of_name_and_counter() -> None:
    draws = Draws("name")
    assert [draws.random_raw(), draws.random_raw()] == NAME


def test_golden_draws() -> None:
    draws = Draws("golden", 1)
    assert [draws.below(10) for _ in range(12)] == [7, 9, 1, 5, 3, 8, 2, 2, 3, 0, 4, 9]
    assert [draws.chance(0.5) for _ in range(8)] == [True, True, False, False, False, True, True, False]
    assert draws.choice("abcdef") == "a"
    assert draws.shuffled(range(8)) == [4, 6, 2, 5, 3, 7, 0, 1]


def test_golden_draws_from_a_numpy_generator() -> None:
    bits = np.random.PCG64(123)
    assert [below(bits, 1000) for _ in range(6)] == [101, 803, 342, 669, 358, 233]


class Words:
    """Raw words from a list."""

    def __init__(self, *words: int) -> None:
        self.words = list(words)

    def random_raw(self) -> int:
        return self.words.pop(0)


def test_below_rejects_the_words_that_would_bias_it() -> None:
    last = (1 << 64) - 1
    assert below(Words(last, 5), 3) == 2, "2**64 - 1 is the one word too many for 3"
    assert below(Words(last - 1), 3) == 2
    assert below(Words(last), 1 << 64) == last
    assert below(Words(last), 1) == 0
    for n in (0, -1):
        with pytest.raises(ValueError, match=f"cannot draw below {n}"):
            below(Words(1), n)


def test_draws_are_even() -> None:
    draws = Draws("even")
    counts = Counter(draws.below(6) for _ in range(6000))
    chi2 = sum((counts[face] - 1000) ** 2 / 1000 for face in range(6))
    assert chi2 < 20.5, "0.1 % level, 5 degrees of freedom"
    share = sum(draws.chance(0.3) for _ in range(10_000)) / 10_000
    assert share == pytest.approx(0.3, abs=0.015)
    firsts = Counter(draws.shuffled("abcd")[0] for _ in range(4000))
    assert all(880 < firsts[letter] < 1120 for letter in "abcd")


def test_chance_ends() -> None:
    draws = Draws("ends")
    assert not any(draws.chance(0.0) for _ in range(100))
    assert all(draws.chance(1.0) for _ in range(100))


def test_canonical_is_one_text_per_value() -> None:
    assert canonical({"b": [1, True, None], "a": "é\n"}) == '{"a":"é\\n","b":[1,true,null]}'
    assert canonical({"a": 1, "b": 2}) == canonical({"b": 2, "a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical(float("nan"))


def test_sha256_text_takes_any_text() -> None:
    assert sha256_text("é") == "4a99557e4033c3539de2eb65472017cad5f9557f7a0625a09f1c3f6e2ba69c4c"
    assert sha256_text("\ud800") != sha256_text("\ud801")


@pytest.mark.parametrize("hash_seed", ["0", "1", "random"])
def test_the_same_in_every_process(hash_seed: str, cli_env: Any) -> None:
    code = "from seed_envs.seeding import *; print(derive('episode', 0, 'train/07', 2), *Draws(1).shuffled('abcdefgh'))"
    env = cli_env(PYTHONHASHSEED=hash_seed)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == [str(EPISODE), *Draws(1).shuffled("abcdefgh")]
