"""A GRPO iteration here and in TRL's GRPOTrainer, in one process, on the same tiny model and prompts.

    pip install trl==1.16.0
    python benchmarks/trl_speed.py            # --kl 0.01, --language alfworld/micro, --reply 64, ...

Single turn: the first prompts of some ALFWorld tasks, each answered by a group of replies of exactly
``--reply`` tokens (least = most new tokens), one update an iteration, the same reward of the reply's
tokens, the same learning rate, clipping and KL coefficient. Runs alternate; a pair is a run of each,
and the median of the pairs' ratios counts. Only iterations are timed, never loading or setting up.

TRL as fast as it gets on a CPU: float32, no gradient checkpointing, no reports, no saving; ``--accumulate``
cuts its batch into micro-batches (ours follow ``micro_tokens``).
"""

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from options import parser_of

from seed_agent.backends.hf_load import load
from seed_agent.policy import MODELS
from seed_agent.tiny import build_text_model
from seed_agent.train.presets import get_preset
from seed_agent.train.samples import Sample
from seed_agent.train.settings import build

if TYPE_CHECKING:
    from seed_agent.train.loop import Trainer

PARTS = ("generate", "score", "update")
Times = dict[str, float]


def reward(reply: Sequence[int]) -> float:
    """Return something that differs between replies."""
    return float(sum(reply) % 7)


def advantages(samples: Sequence[Sample]) -> dict[str, float]:
    """Give the samples advantages by the reward of their replies' tokens."""
    from seed_agent.losses import group_advantage

    rewards = load("torch").tensor([reward(sample.row.ids[sample.row.prompt :]) for sample in samples])
    values, found = group_advantage(rewards, [sample.group for sample in samples], std="sample")
    for sample, value in zip(samples, values.tolist(), strict=True):
        sample.advantage = value
    return found


def make_ours(folder: Path, options: argparse.Namespace) -> "Trainer":
    """Return our trainer with that reward: one turn, replies of a fixed length, always the same tasks."""
    from seed_agent.train.loop import Trainer

    changes = {
        "model": str(folder),
        "init": "given",
        "language": options.language,
        "tasks": options.tasks,
        "group": options.group,
        "minibatch": 0,
        "micro_tokens": options.micro_tokens,
        "max_turns": 1,
        "max_reply_tokens": options.reply,
        "kl": options.kl,
        "lr": options.lr,
        "batch": options.tasks * options.group,
    }
    settings = build({**get_preset("alfworld/micro/grpo").settings.model_dump(), **changes})
    policy = MODELS.get("hf")(f"{folder}?device=cpu&dtype=float32&batch={settings.batch}")
    policy._ends = frozenset()
    trainer = Trainer(settings, policy)
    trainer._advantages = advantages  # type: ignore[method-assign]
    trainer.language = replace(trainer.language, sampling=replace(trainer.language.sampling, stop=()))
    trainer.pool = trainer.pool[: options.tasks]
    return trainer


def run_ours(trainer: "Trainer", options: argparse.Namespace, number: int) -> Times:
    """Run some iterations and return the mean seconds of one, and of its parts."""
    found = [trainer.iteration(number * options.iterations + i) for i in range(options.iterations)]
    tokens = options.tasks * options.group * options.reply
    assert all(metrics["rl/reply_tokens"] == tokens and metrics["rl/updates"] == 1 for metrics in found)
    times = {part: statistics.mean(metrics[f"time/{part}_s"] for metrics in found) for part in PARTS}
    return {**times, "whole": sum(times.values())}


def prompts_of(trainer: "Trainer") -> tuple[list[str], list[tuple[int, ...]]]:
    """Return the texts and token ids of the prompts that the tasks begin with."""
    from seed_agent.train.rollouts import requests_of

    played = trainer.play(requests_of(list(trainer.pool), 0, trainer.settings))[:: trainer.settings.group]
    prompts = [one.decisions[0].prompt for one in played]
    return [p.chat[0].text for p in prompts if p], [p.ids or () for p in prompts if p]


class Stopwatch:
    """Sums the seconds of the calls it wraps, by method."""

    def __init__(self) -> None:
        """Start at nothing."""
        self.spent: dict[str, float] = {}

    def wrap(self, owner: Any, method: str) -> None:
        """Have every call of ``owner.method`` measured."""
        call: Callable[..., Any] = getattr(owner, method)

        def measured(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self.spent[method] = self.spent.get(method, 0.0) + time.perf_counter() - start

        setattr(owner, method, measured)


def run_trl(folder: Path, texts: Sequence[str], options: argparse.Namespace, number: int, out: Path) -> Times:
    """Let TRL take the same number of steps and return the mean seconds of one, and of its parts."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    stamps: list[float] = []

    class Stamp(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            stamps.append(time.perf_counter())

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            stamps.append(time.perf_counter())

    def rewards(completion_ids: list[list[int]], **_: Any) -> list[float]:
        assert all(len(reply) == options.reply for reply in completion_ids)
        return [reward(reply) for reply in completion_ids]

    config = GRPOConfig(
        output_dir=str(out), use_cpu=True, bf16=False, gradient_checkpointing=False, report_to=[], seed=number,
        save_strategy="no", logging_strategy="no", disable_tqdm=True, dataloader_pin_memory=False,
        per_device_train_batch_size=options.tasks * options.group // options.accumulate,
        gradient_accumulation_steps=options.accumulate, num_generations=options.group, max_steps=options.iterations,
        max_completion_length=options.reply, generation_kwargs={"min_new_tokens": options.reply},
        learning_rate=options.lr, lr_scheduler_type="constant", weight_decay=0.01, beta=options.kl, loss_type="bnpo",
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder),
        reward_funcs=rewards,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": [[{"role": "user", "content": text}] for text in texts]}),
        processing_class=AutoTokenizer.from_pretrained(folder, padding_side="left"),
        callbacks=[Stamp()],
    )
    trainer.remove_callback(PrinterCallback)
    watch = Stopwatch()
    watch.wrap(trainer, "_generate")
    watch.wrap(trainer, "_generate_and_score_completions")
    trainer.train()
    steps = options.iterations
    assert len(stamps) == 2 * steps and trainer.state.global_step == steps
    whole = sum(stamps[1::2]) - sum(stamps[::2])
    generate, scored = watch.spent["_generate"], watch.spent["_generate_and_score_completions"]
    found = {"generate": generate, "score": scored - generate, "update": whole - scored, "whole": whole}
    return {part: seconds / steps for part, seconds in found.items()}


def _shares(times: Times) -> str:
    return ", ".join(f"{part} {100 * times[part] / times['whole']:.0f} %" for part in PARTS)


def main() -> None:
    """Run the pairs and print them."""
    parser = parser_of(__doc__, group=8)
    parser.add_argument("--kl", type=float, default=0.0)
    parser.add_argument("--lr", type=float, default=1e-6)
    parser.add_argument("--micro-tokens", type=int, default=4_096)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=3, help="of each in a run")
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    load("torch").set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        folder = options.model or build_text_model(Path(name) / "model", hidden=options.hidden)
        ours = make_ours(folder, options)
        texts, ids = prompts_of(ours)
        lengths = [len(prompt) for prompt in ids]
        for text, prompt in zip(texts, ids, strict=True):  # TRL renders the same messages itself
            chat = [{"role": "user", "content": text}]
            again = ours.policy.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
            assert tuple(again) == prompt
        print(
            f"{ours.policy.parameters} parameters, {options.tasks} prompts of {min(lengths)} to {max(lengths)} tokens, "
            f"{options.group} replies of {options.reply} each, KL {options.kl}, {options.threads} thread(s)"
        )
        warm = argparse.Namespace(**{**vars(options), "iterations": 1})
        run_ours(ours, warm, 0)
        run_trl(folder, texts, warm, 0, Path(name) / "trl")
        ratios = []
        for number in range(1, options.pairs + 1):
            both = {
                "ours": run_ours(ours, options, number),
                "TRL": run_trl(folder, texts, options, number, Path(name) / "trl"),
            }
            ratios.append(both["TRL"]["whole"] / both["ours"]["whole"])
            told = (f"{who} {t['whole']:.2f} s ({_shares(t)})" for who, t in both.items())
            print(f"pair {number}: {'; '.join(told)}; TRL/ours {ratios[-1]:.2f}", flush=True)
        print(f"median of {len(ratios)} pairs: TRL takes {statistics.median(ratios):.2f} times as long an iteration")


if __name__ == "__main__":
    main()
