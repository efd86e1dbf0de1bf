"""What a model and a machine must be able to do for a run, and which setting to turn when they cannot."""

import contextlib
from collections.abc import Iterator

import torch

from seed_agent.backends.hf import HFPolicy
from seed_agent.chat import Language
from seed_agent.methods import Method
from seed_agent.train.settings import Settings
from seed_envs.errors import ConfigError, SeedError


class OutOfMemory(SeedError):
    """An update or a scoring pass did not fit."""


def check_model(policy: HFPolicy, settings: Settings, method: Method, language: Language) -> None:
    """Refuse a model that cannot be trained as asked.

    Raises:
        ConfigError: when its tokenizer has no chat template, or one that makes no single sequence of an
            episode that is to be one, or when its context is too short.
    """
    if policy.renderer.template is None:
        raise ConfigError(
            f"the tokenizer of {policy.name} has no chat template; expected a chat model, or put a "
            "chat_template.jinja into its folder"
        )
    if settings.samples == "episode" and policy.renderer.unstable:
        raise ConfigError(
            f"samples=episode: the chat template of {policy.name} is not prefix-stable: {policy.renderer.unstable}; "
            "give samples=turn"
        )
    asked = settings.analyzer_prompt_tokens + settings.analyzer_reply_tokens
    if method.skill_source in ("self", "frozen") and policy.context is not None and asked > policy.context:
        raise ConfigError(
            f"analyzer_prompt_tokens + analyzer_reply_tokens = {asked} exceed the context of {policy.name}, "
            f"{policy.context}; lower them"
        )
    if policy.context is not None and language.sampling.max_tokens >= policy.context:
        raise ConfigError(
            f"max_reply_tokens={language.sampling.max_tokens} leaves no prompt in the context of {policy.name}, "
            f"{policy.context}; lower it"
        )


@contextlib.contextmanager
def explained(settings: Settings) -> Iterator[None]:
    """Turn a lack of memory into one line that names the settings to change.

    Raises:
        OutOfMemory: in place of torch's error.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # torch.OutOfMemoryError is a RuntimeError; on the CPU a plain one
        first = (str(error).splitlines() or [""])[0]
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and "allocate memory" not in first:
            raise
        checkpointing = "" if settings.gradient_checkpointing else ", set gradient_checkpointing=true"
        raise OutOfMemory(
            f"memory is too small ({first[:160]}); lower micro_tokens={settings.micro_tokens} or "
            f"batch={settings.batch}{checkpointing}, or take a smaller model"
        ) from error
