"""What a model and a machine must be able to do for a run, and which setting to turn when they cannot."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from seed_agent.chat import Language
from seed_agent.methods import Method
from seed_agent.train.settings import Settings
from seed_agent.trajectory import Episode
from seed_envs.errors import ConfigError, SeedError

if TYPE_CHECKING:
    from seed_agent.backends.hf import HFPolicy


class OutOfMemory(SeedError):
    """An update, a scoring pass or a reply did not fit."""


def check_model(policy: "HFPolicy", settings: Settings, method: Method, language: Language) -> None:
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
        if not _lacks_memory(type(error).__name__, str(error)):
            raise
        checkpointing = "" if settings.gradient_checkpointing else ", set gradient_checkpointing=true"
        knobs = f"lower micro_tokens={settings.micro_tokens} or batch={settings.batch}{checkpointing}"
        raise _out_of_memory(str(error), knobs) from error


def check_memory(episode: Episode, settings: Settings) -> None:
    """Stop at an episode whose reply did not fit: without it a run would learn from what fits alone.

    Raises:
        OutOfMemory: naming the settings to change.
    """
    error = episode.error
    if error is not None and episode.outcome == "policy_error" and _lacks_memory(error.type, error.message):
        raise _out_of_memory(error.message, f"lower batch={settings.batch}, max_reply_tokens or max_prompt_tokens")


def _lacks_memory(kind: str, message: str) -> bool:
    """Whether an error's type or text says so: Python's, numpy's, torch's, vLLM's and our backends' own."""
    told = any(words in _first_line(message) for words in ("allocate memory", "out of memory"))
    return told or kind.endswith(("MemoryError", "OutOfMemory"))


def _first_line(message: str) -> str:
    return (message.splitlines() or [""])[0]


def _out_of_memory(message: str, knobs: str) -> OutOfMemory:
    return OutOfMemory(f"memory is too small ({_first_line(message)[:160]}); {knobs}, or take a smaller model")
