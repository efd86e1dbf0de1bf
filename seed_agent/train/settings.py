"""What a training run is, as one validated, immutable value; a preset is a row of these."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, get_origin

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from seed_envs.errors import ConfigError, UnknownName
from seed_envs.seeding import canonical, sha256_text

HOW = ("batch", "gradient_checkpointing", "micro_tokens", "milestones", "rollout_memory", "save_every")
"""Settings that decide how a run is computed and not, up to rounding, what: they may change when it goes on."""


_Beta = Annotated[float, Field(ge=0, lt=1)]


class Settings(BaseModel):
    """Everything that decides a run of stage 2; nothing else does.

    Lengths are in tokens of the model's tokenizer. The defaults are SEED's where it has a value
    (docs/training.md names the sources).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    preset: str = ""
    # what is trained, where, how
    model: str = ""
    """A Hugging Face folder or name."""
    init: Literal["method", "given"] = "method"
    """``method``: ``model`` must be what the method starts from (a stage-1 export or a base model), which
    is checked; ``given``: start from ``model`` whatever it is."""
    method: str = "seed"
    env: str = "seed_envs/ALFWorld-v0"
    env_args: dict[str, Any] = Field(default_factory=dict)
    language: str = "alfworld/seed"
    """The language preset: history, limits, parser."""
    seed: int = Field(default=0, ge=0)
    fraction: float = Field(default=1.0, gt=0, le=1)
    fraction_mode: Literal["budget", "subset"] = "budget"
    min_pixels: int | None = Field(default=None, ge=0)
    """Smaller images are enlarged to so many pixels, of vision models; by default as the published runs do."""
    # schedule
    iterations: int = Field(default=150, ge=1)
    tasks: int = Field(default=16, ge=1)
    """Tasks per iteration."""
    group: int = Field(default=8, ge=1)
    """Episodes per task."""
    minibatch: int = Field(default=256, ge=0)
    """Samples (turns, or episodes: ``samples``) per optimiser step; 0 takes all of an iteration."""
    micro_tokens: int = Field(default=16_384, ge=1)
    """Padded tokens per forward pass; the gradient does not depend on it."""
    samples: Literal["turn", "episode"] = "turn"
    """What a sample is. ``turn``: a prompt and the reply to it. ``episode``: a whole conversation, of which the
    replies count; it needs a language that is one, and a chat template that only appends."""
    # rollouts
    rollout_backend: Literal["hf", "vllm"] = "hf"
    """What plays and writes the policy's own skills: transformers, or vLLM in the same process, which gets the
    weights before every iteration. Training is by transformers either way; vLLM draws other replies."""
    rollout_memory: float = Field(default=0.4, gt=0, lt=1)
    """Share of the device's memory that vLLM takes, with its copy of the weights."""
    max_turns: int | None = Field(default=None, ge=1)
    max_prompt_tokens: int | None = Field(default=None, ge=1)
    max_reply_tokens: int | None = Field(default=None, ge=1)
    history: int | None = Field(default=None, ge=0)
    temperature: float = Field(default=1.0, gt=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    think: bool = True
    # reward
    reward: Literal["success", "score", "native"] = "success"
    """``success``: 1 when the goal is reached; ``score``: the benchmark's; ``native``: the sum of rewards."""
    reward_scale: float = 10.0
    invalid_penalty: float = Field(default=0.0, ge=0)
    """Subtracted from the score of a turn whose reply is ill-formed, before the group's statistics; where a sample
    is an episode, too, of that turn's tokens."""
    # advantage and losses
    adv_stats: Literal["trajectory", "first_row", "step_rows"] = "trajectory"
    adv_std: Literal["population", "sample", "none"] = "population"
    adv_singleton: Literal["zero", "raw"] = "zero"
    clip_low: float = Field(default=0.2, ge=0)
    clip_high: float = Field(default=0.2, ge=0)
    dual_clip: float | None = Field(default=None, gt=1)
    kl: float = Field(default=0.01, ge=0)
    entropy: float = Field(default=0.0, ge=0)
    reduction: Literal["token_mean", "sequence_mean", "sequence_sum"] = "token_mean"
    distill_coefficient: float | None = Field(default=None, ge=0)
    """In place of the method's own; for studies."""
    teacher: Literal["snapshot", "current"] = "snapshot"
    old: Literal["rescored", "sampled"] = "rescored"
    """Log-probabilities of the policy that played: scored again as the update scores, or those of sampling,
    which differ by rounding (``rl/logp_drift_max``) and save a pass."""
    annotator: str = "rules"
    """Who writes skills for methods whose source is external or a bank."""
    analyzer_prompt_tokens: int = Field(default=16_384, ge=1)
    analyzer_reply_tokens: int = Field(default=4_096, ge=1)
    # optimiser
    lr: float = Field(default=1e-6, gt=0, le=1)
    warmup: int = Field(default=0, ge=0)
    """Optimiser steps of linear warm-up; the rate is constant afterwards."""
    weight_decay: float = Field(default=0.01, ge=0)
    betas: tuple[_Beta, _Beta] = (0.9, 0.999)
    grad_clip: float = Field(default=1.0, gt=0)
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    """``bfloat16`` computes in it (autocast) over float32 weights: an update of 1e-6 would vanish in bfloat16
    weights. ``float64`` is for tests."""
    gradient_checkpointing: bool = False
    batch: int = Field(default=64, ge=1)
    """Sequences generated or scored together, at most."""
    # evaluation and checkpoints
    eval_every: int = Field(default=5, ge=0)
    """Iterations between evaluations; 0 for none but before the first and after the last."""
    eval_splits: tuple[str, ...] = ("valid_seen",)
    eval_limit: int | None = Field(default=128, ge=1)
    """Tasks of a split that are drawn, the same for every seed; None for all."""
    eval_temperature: float = Field(default=0.4, ge=0)
    save_every: int = Field(default=10, ge=1)
    milestones: tuple[int, ...] = ()
    """Iterations whose weights are kept for good, in ``milestones/iteration_N`` of the run's folder."""

    @property
    def digest(self) -> str:
        """The sha256 of the canonical JSON without `HOW`: the run's identity."""
        return sha256_text(canonical(self.model_dump(mode="json", exclude=set(HOW))))

    @property
    def planned(self) -> int:
        """Iterations to run: in ``budget`` mode the fraction shortens a constant-rate schedule."""
        share = self.fraction if self.fraction_mode == "budget" else 1.0
        return max(1, round(self.iterations * share))


def override(settings: Settings, texts: Iterable[str]) -> Settings:
    """Return ``settings`` with ``key=value`` texts applied, converted by the field's type.

    Raises:
        UnknownName: for a key that does not exist, with near names.
        ConfigError: for a text without ``=`` or a value that cannot be used.
    """
    changes: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"{text!r} is no setting; expected key=value, for example lr=1e-5")
        if key not in Settings.model_fields:
            raise UnknownName("setting", key, Settings.model_fields)
        changes[key] = _value(key, value)
    return build(settings.model_dump() | changes)


def build(values: dict[str, Any]) -> Settings:
    """Return validated settings.

    Raises:
        UnknownName: for a key that does not exist.
        ConfigError: naming the first value that cannot be used, and why.
    """
    for key in values:
        if key not in Settings.model_fields:
            raise UnknownName("setting", key, Settings.model_fields)
    try:
        return Settings.model_validate(values)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{first['loc'][0]}={first['input']!r} cannot be used: {first['msg']}") from None


def _value(key: str, text: str) -> Any:
    """Read a value as its field expects: text fields take it as it is, the others JSON or a comma list."""
    annotation = Settings.model_fields[key].annotation
    if annotation is str:
        return text
    if get_origin(annotation) is tuple:
        return tuple(part for part in text.split(",") if part)
    if text.lower() in ("none", "null"):
        return None
    if annotation == dict[str, Any]:
        try:
            return pydantic.TypeAdapter(dict[str, Any]).validate_json(text)
        except pydantic.ValidationError:
            raise ConfigError(f"{key}={text!r} cannot be used; expected a JSON object") from None
    return text
