"""What a multi-turn rollout costs beyond generating its replies.

    python benchmarks/rollout_overhead.py            # --model FOLDER, --language alfworld, --reply 64, ...

Plays ALFWorld episodes as training does: environments, histories, prompts, tokens, sampling, parsing.
Every reply has exactly ``--reply`` tokens. Then the very same batches of prompts are continued by as
many tokens with transformers' own ``model.generate``, padded and sampled, and once more by the decode
loop of ``hf:`` alone. The overhead is the rollout's time over that of either; medians of the runs count.
"""

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from options import parser_of

from seed_agent.backends.hf_load import load
from seed_agent.backends.hf_model import Row
from seed_agent.policy import MODELS, Sampling
from seed_agent.tiny import build_text_model
from seed_agent.train.presets import get_preset
from seed_agent.train.rollouts import ImageStore, Stage, draw_tasks, language_of, method_of, requests_of
from seed_agent.train.settings import Settings, build
from seed_envs.seeding import Draws


class Counted:
    """Takes a fixed number of tokens and does nothing with them."""

    def __init__(self, room: int, seed: int) -> None:
        """Begin a reply of ``room`` tokens."""
        self.left, self.stream = room, Draws("benchmark", seed)

    def draw(self) -> float:
        """Return the next number in [0, 1)."""
        return (self.stream.random_raw() >> 11) / (1 << 53)

    def add(self, token: int, logp: float) -> bool:
        """Count a token."""
        self.left -= 1
        return self.left > 0


class Rollouts:
    """Plays the same tasks again and again, with other seeds, and keeps the batches that were generated."""

    def __init__(self, settings: Settings) -> None:
        """Load the model and make the environments."""
        self.settings = settings
        self.policy: Any = MODELS.get("hf")(f"{settings.model}?device=cpu&dtype=float32&batch={settings.batch}")
        self.policy._ends = frozenset()
        language = language_of(settings, method_of(settings), temperature=1.0)
        self.language = replace(language, sampling=replace(language.sampling, stop=()))
        self.stage = Stage(settings, "train", settings.tasks * settings.group)
        self.batches: list[Sequence[Row]] = []
        self._sample = self.policy.network.sample
        self.policy.network.sample = self._keep

    def _keep(self, rows: Sequence[Row], writers: Any, sampling: Sampling) -> None:
        self.batches.append(rows)
        self._sample(rows, writers, sampling)

    def play(self, number: int) -> float:
        """Return the seconds of an iteration's episodes."""
        self.batches.clear()
        requests = requests_of(draw_tasks(self.stage.tasks, 0, self.settings), number, self.settings)
        start = time.perf_counter()
        self.stage.play(requests, self.policy, self.language, images=ImageStore())
        return time.perf_counter() - start

    def transformers(self) -> float:
        """Return the seconds that ``model.generate`` needs for the batches."""
        torch = load("torch")
        model, reply = self.policy.model, self.settings.max_reply_tokens
        start = time.perf_counter()
        for rows in self.batches:
            width = max(row.prompt for row in rows)
            ids = torch.tensor([(0,) * (width - row.prompt) + row.ids for row in rows])
            mask = torch.tensor([[0] * (width - row.prompt) + [1] * row.prompt for row in rows])
            with torch.inference_mode():
                found = model.generate(
                    input_ids=ids,
                    attention_mask=mask,
                    do_sample=True,
                    top_k=0,
                    min_new_tokens=reply,
                    max_new_tokens=reply,
                )
            assert found.shape == (len(rows), width + reply)
        return time.perf_counter() - start

    def decode_loop(self) -> float:
        """Return the seconds that the decode loop of ``hf:`` needs for the batches."""
        reply = self.settings.max_reply_tokens or 0
        start = time.perf_counter()
        for rows in self.batches:
            self._sample(rows, [Counted(reply, i) for i in range(len(rows))], Sampling(1.0, 1.0, reply))
        return time.perf_counter() - start


def main() -> None:
    """Run and print."""
    parser = parser_of(__doc__, group=4)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    load("torch").set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as name:
        folder = options.model or build_text_model(Path(name), hidden=options.hidden)
        changes = {"model": str(folder), "init": "given", "language": options.language, "batch": 64}
        changes |= {"tasks": options.tasks, "group": options.group, "max_turns": options.turns}
        values = get_preset("alfworld/micro/grpo").settings.model_dump() | changes | {"max_reply_tokens": options.reply}
        rollouts = Rollouts(build(values))
        rollouts.play(0)
        found: dict[str, list[float]] = {"model.generate": [], "the decode loop of hf:": []}
        for number in range(1, options.runs + 1):
            played, bare, loop = rollouts.play(number), rollouts.transformers(), rollouts.decode_loop()
            prompts = [row.prompt for rows in rollouts.batches for row in rows]
            for which, seconds in zip(found, (bare, loop), strict=True):
                found[which].append(played / seconds - 1)
            print(
                f"run {number}: {len(prompts)} turns, prompts of {statistics.mean(prompts):.0f} tokens, replies of "
                f"{options.reply}: rollout {played:.2f} s, model.generate {bare:.2f} s, decode loop {loop:.2f} s",
                flush=True,
            )
        for which, shares in found.items():
            print(f"median of {len(shares)}: a rollout takes {100 * statistics.median(shares):+.0f} % over {which}")


if __name__ == "__main__":
    main()
