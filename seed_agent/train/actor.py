"""Who plays in a training run: the model itself, or its copy on vLLM. Importing this needs no torch."""

from typing import TYPE_CHECKING

from seed_agent.backends.hf_load import source_of
from seed_agent.backends.vllm import VLLMPolicy
from seed_agent.backends.vllm_engine import EngineOptions, start
from seed_agent.methods import METHODS
from seed_agent.train.settings import Settings
from seed_envs.errors import ConfigError
from seed_envs.presets import get_preset

if TYPE_CHECKING:
    from seed_agent.backends.hf import HFPolicy


def check_backend(settings: Settings) -> None:
    """Refuse settings that vLLM cannot play by; without ``rollout_backend=vllm`` there is nothing to check.

    Raises:
        ConfigError: naming the setting.
    """
    if settings.rollout_backend != "vllm":
        return
    if settings.dtype == "float64":
        raise ConfigError("vLLM computes in float32 or bfloat16; give another dtype or rollout_backend=hf")
    if settings.old == "sampled" and settings.top_p < 1:
        raise ConfigError(
            f"old=sampled needs the whole distribution's log-probabilities, which vLLM does not give at "
            f"top_p={settings.top_p:g}; give old=rescored, top_p=1 or rollout_backend=hf"
        )


def copy_on_vllm(settings: Settings, policy: "HFPolicy") -> VLLMPolicy | None:
    """Start vLLM with ``policy``'s model for a run that plays on it, None for one that does not.

    Its weights are those of the files; ``VLLMPolicy.sync`` gives it the model's.

    Raises:
        ConfigError: when the settings or the model cannot be played so, or vLLM cannot run it.
        MissingDependency: when vLLM is not installed.
    """
    check_backend(settings)
    if settings.rollout_backend != "vllm":
        return None
    if policy.sees:
        raise ConfigError(
            f"rollout_backend=vllm takes text models only and {policy.name} sees; give rollout_backend=hf"
        )
    needed = _longest(settings)
    context = needed if policy.context is None else min(needed, policy.context)
    eager = policy.network.device.type == "cpu"
    options = EngineOptions(settings.dtype, context, settings.batch, settings.rollout_memory, eager)
    name, ends = policy.name.removeprefix("hf:"), policy.model.generation_config
    engine = start(source_of(name), options)
    return VLLMPolicy(name, engine, policy.tokenizer, ends, options, placement=policy.placement)


def _longest(settings: Settings) -> int:
    """Return the tokens of the longest prompt with its reply; a shorter context leaves more memory for others."""
    preset, method = get_preset(settings.language), METHODS.get(settings.method)
    prompt = settings.max_prompt_tokens or preset.max_prompt_tokens
    longest = prompt + (settings.max_reply_tokens or preset.max_reply_tokens)
    if method.skill_source == "self":
        longest = max(longest, settings.analyzer_prompt_tokens + settings.analyzer_reply_tokens)
    return longest + 1
