"""A model at the table: prompt, reply, action. The language layer over any environment."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from seed_agent.policy import Completion, Decision, Message, Policy, Prompt, Sampling, Situation
from seed_agent.skills.insert import insert_skill
from seed_envs.core import Info
from seed_envs.errors import ConfigError, SeedError
from seed_envs.parsing import Parsed, read_reply, stops, strict
from seed_envs.presets import LanguagePreset
from seed_envs.prompting import IMAGE, Past, Template
from seed_envs.seeding import derive
from seed_envs.vector import Failure, GroupVectorEnv


@dataclass(frozen=True)
class Language:
    """Everything between an observation and an action, resolved."""

    template: Template
    preset: LanguagePreset
    sampling: Sampling
    require_think: bool = True

    def facts(self) -> dict[str, Any]:
        """Return what a run records and what its identity covers."""
        return {
            "preset": self.preset.name,
            "template": self.template.name,
            "template_sha256": self.template.sha256,
            "parser": self.preset.parser,
            "layout": self.preset.layout,
            "history": self.preset.history,
            "max_prompt_tokens": self.preset.max_prompt_tokens,
            "max_prompt_chars": self.preset.max_prompt_chars,
            "require_think": self.require_think,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "max_reply_tokens": self.sampling.max_tokens,
            "stop": list(self.sampling.stop),
        }

    def parse(self, reply: str) -> Parsed:
        """Read an action out of ``reply`` by the preset's parser."""
        preset = self.preset
        return read_reply(reply, kind=preset.kind, parser=preset.parser, require_think=self.require_think)


class PromptTooLong(SeedError):
    """A prompt does not fit even without history."""


class ConversationFull(SeedError):
    """A conversation has no room for another observation."""


FULL = "the conversation is as long as max_prompt_tokens or the model's context allows; nothing more is asked"
"""Why a turn of a conversation has no reply."""


class ChatPlayer:
    """Plays with a language model: one user message per turn, one action per reply.

    A conversation that is full is never cut. Its episode goes on without the model, with empty
    actions, to the environment's own end: its outcome stands (``generation_truncated`` where it is
    not solved), such turns carry `FULL` as ``format_reason`` and no token ids, and they are counted.
    """

    def __init__(self, policy: Policy, language: Language, *, skill_for: Callable[[Info], str] | None = None) -> None:
        """Join a model and the language it is spoken to in.

        ``skill_for`` gives a skill to show in every prompt of a task, for methods that act with one.
        """
        self.policy, self.language, self.skill_for = policy, language, skill_for
        self.name = policy.name
        self._talks = language.preset.layout == "conversation"

    def act(self, situations: Sequence[Situation], envs: GroupVectorEnv) -> list[Decision | Failure]:
        """Ask the model about every row in one batch; rows whose prompt it finds too long are asked again."""
        answers: dict[int, Decision | Failure] = {}
        shown = {i: min(self.language.preset.history, len(s.turns)) for i, s in enumerate(situations)}
        waiting = list(shown)
        while waiting:
            prompts: dict[int, Prompt] = {}
            for i in waiting:
                try:
                    prompts[i], shown[i] = self._prompt(situations[i], shown[i])
                except ConversationFull:
                    answers[i] = _UNASKED
                except (SeedError, ValueError) as error:  # of this row alone
                    answers[i] = Failure.of(error)
            completions = self.policy.generate(
                list(prompts.values()),
                self.language.sampling,
                [derive("reply", situations[i].seed, len(situations[i].turns)) for i in prompts],
            )
            waiting = []
            for i, completion in zip(prompts, completions, strict=True):
                if not isinstance(completion, Failure):
                    answers[i] = self._decide(situations[i], prompts[i], shown[i], completion)
                elif completion.type == "PromptTooLong" and shown[i]:
                    shown[i] -= 1  # only the model's server knew
                    waiting.append(i)
                elif completion.type == "PromptTooLong" and self._talks and situations[i].turns:
                    answers[i] = _UNASKED
                else:
                    answers[i] = completion
        return [answers[i] for i in range(len(situations))]

    def _decide(self, situation: Situation, prompt: Prompt, shown: int, completion: Completion) -> Decision:
        parsed = self.language.parse(completion.text)
        action = parsed.action
        closed = any(tag in completion.text.lower() for tag in stops(self.language.preset.kind))
        if completion.stop_reason == "length" and not closed:
            action = ""  # cut before the action was complete: nothing is executed
        return Decision(
            reply=completion.text,
            action=action,
            format_ok=parsed.format_ok,
            stop_reason=completion.stop_reason,
            format_reason=parsed.reason,
            token_ids=completion.token_ids,
            logp=completion.logp,
            history_dropped=min(self.language.preset.history, len(situation.turns)) - shown,
            prompt=prompt,
        )

    def _prompt(self, situation: Situation, shown: int) -> tuple[Prompt, int]:
        """Render the longest history of at most ``shown`` turns that fits; the oldest whole turns go first.

        Raises:
            PromptTooLong: when even a prompt without history is too long.
            ConversationFull: when a conversation that has begun is.
        """
        preset, room = self.language.preset, self._room()
        if self._talks and situation.turns:
            prompt = self._go_on(situation)
            if len(prompt.ids or ()) > room:
                raise ConversationFull(FULL)
            return prompt, 0
        while True:
            prompt = self.render(situation, shown)
            size = len(prompt.ids or ())
            wordy = preset.max_prompt_chars is not None and len(prompt.chat[-1].text) > preset.max_prompt_chars
            if size <= room and not (wordy and shown):
                return prompt, shown
            if not shown:
                raise PromptTooLong(
                    f"a prompt of {size} tokens exceeds {room} even without history; raise the preset's "
                    "max_prompt_tokens, or take a model of a longer context or shorter replies"
                )
            shown = 0 if wordy else shown - 1

    def _room(self) -> int:
        """Return how many tokens a prompt may have: the preset's limit, and what the context leaves beside a reply."""
        context: int | None = getattr(self.policy, "context", None)
        limit = self.language.preset.max_prompt_tokens
        return limit if context is None else min(limit, max(1, context - self.language.sampling.max_tokens))

    def _go_on(self, situation: Situation) -> Prompt:
        """Return the conversation so far, the last reply and what was seen then.

        The ids of the prompt before and the sampled reply's stay as they are where the policy can do
        that; elsewhere the template renders the whole chat.

        Raises:
            ConversationFull: when it was full before.
            ConfigError: when the loop does not say what was asked before.
        """
        last, asked = situation.turns[-1], situation.asked
        if last.format_reason == FULL:
            raise ConversationFull(FULL)
        if asked is None:
            raise ConfigError("a conversation goes on from the prompt before; expected Situation.asked, got None")
        chat = (*asked.chat, Message("assistant", last.reply), self._message(situation, 0))
        extend = getattr(self.policy, "extend", None)
        if extend is None or asked.ids is None or not last.token_ids:
            return self.policy.prompt(chat)
        prompt: Prompt = extend(asked, last.token_ids, chat)
        return prompt

    def render(self, situation: Situation, shown: int) -> Prompt:
        """Return the prompt of one message, with the last ``shown`` turns of history."""
        return self.policy.prompt((self._message(situation, shown),))

    def _message(self, situation: Situation, shown: int) -> Message:
        preset, info, turns = self.language.preset, situation.info, situation.turns
        image = situation.observation.get("image")
        admissible = info["admissible_actions"]
        first = len(turns) - shown
        text = self.language.template.render(
            instruction=info["instruction"],
            observation=situation.observation["text"],
            taken=len(turns),
            history=[
                Past(first + i + 1, turn.observation.text, turn.action, strict(turn.reply).thought)
                for i, turn in enumerate(turns[first:])
            ],
            admissible=None if admissible is None else [a for a in admissible if a not in preset.hidden_actions],
            image=image is not None,
        )
        if self.skill_for is not None and not (self._talks and turns):  # a conversation holds it already
            text = insert_skill(text, self.skill_for(info))
        if image is not None and IMAGE not in text:
            raise ConfigError(
                f"prompt template {self.language.template.name} shows no picture; write {IMAGE} where it goes"
            )
        return Message("user", text, () if image is None else (image,))


_UNASKED = Decision("", "", format_ok=False, stop_reason="length", format_reason=FULL)


def with_limits(preset: LanguagePreset, **changes: Any) -> LanguagePreset:
    """Return ``preset`` with some values replaced by a user's.

    Raises:
        ConfigError: for a history of a conversation, which holds every turn anyway.
    """
    if preset.layout == "conversation" and changes.get("history") is not None:
        raise ConfigError(
            f"history={changes['history']} means nothing to {preset.name}, a conversation that holds every turn; "
            f"leave it out, or take the language {preset.kind}"
        )
    return replace(preset, **{key: value for key, value in changes.items() if value is not None})
