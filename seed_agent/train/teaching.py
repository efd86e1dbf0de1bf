"""Where skills come from in a run: the library, the policy itself, its frozen start, others, a bank."""

from collections.abc import Callable, Sequence
from typing import Any

from seed_agent.methods import Method
from seed_agent.policy import Pixels, Policy, Prompt
from seed_agent.skills.analyzer import check_train
from seed_agent.skills.annotators import Annotator, Options, make_annotator
from seed_agent.skills.bank import SkillBank
from seed_agent.skills.insert import insert_into_chat
from seed_agent.skills.library import skill_for
from seed_agent.skills.model import ModelAnnotator
from seed_agent.skills.skill import ParseFailure, Skill, tally
from seed_agent.skills.steps import choose_skill
from seed_agent.train.samples import Played
from seed_agent.train.settings import Settings
from seed_agent.trajectory import storable
from seed_envs.core import Info
from seed_envs.presets import get_preset

_STEP_SKILLS = 5
"""Skills of single steps asked for at most, where a method uses them (OPID)."""


class Skills:
    """The skills of a run, behind three questions: shown to the actor, drawn from episodes, given to the teacher."""

    def __init__(
        self,
        settings: Settings,
        method: Method,
        policy: Policy,
        analyzer: Policy,
        images: Callable[[str], Pixels],
    ) -> None:
        """Choose the source that ``method`` names.

        Args:
            settings: Of the run.
            method: Of the run.
            policy: The model in training, which renders the teacher's prompts.
            analyzer: Who writes the skills of a method whose model does so itself, now or as it began.
            images: Returns the pixels of a recorded image.

        Raises:
            SeedError: when the annotator cannot be made.
        """
        self.settings, self.method, self.policy = settings, method, policy
        self.kind = get_preset(settings.language).kind
        options = Options(
            images=images,
            max_prompt_tokens=settings.analyzer_prompt_tokens,
            max_reply_tokens=settings.analyzer_reply_tokens,
            step_skills=_STEP_SKILLS if method.step_skills else 0,
            batch=settings.batch,
        )
        self.bank = SkillBank() if method.skill_source == "bank" else None
        self.annotator: Annotator | None = None
        if method.skill_source in ("self", "frozen"):
            self.annotator = ModelAnnotator(analyzer, options)
        elif method.skill_source in ("external", "bank"):
            self.annotator = make_annotator(settings.annotator, options)
        self.too_long = 0
        """Samples of this iteration whose teacher prompt did not fit the model's context."""
        self.written: list[dict[str, Any]] = []
        """The usable skills that were written in this iteration, as `skills.jsonl` keeps them."""
        self.trouble = ""
        """Why not a single skill of this iteration was usable, "" where one was or none was asked for."""

    @property
    def shown(self) -> Callable[[Info], str] | None:
        """What the acting policy is shown, None where the method shows nothing."""
        return self.library if self.method.train_skill else None

    def library(self, info: Info) -> str:
        """Return the static skill of a task."""
        return skill_for(self.kind, info["category"], info["task_id"])

    def annotate(self, played: Sequence[Played]) -> dict[str, Any]:
        """Give every episode its skill, where it can have one, and return counts.

        What an annotator cannot do (no JSON, a time-out, a dead server) costs the skill and is counted.

        Raises:
            Contaminated: for an episode outside the training split.
        """
        self.too_long, self.written, self.trouble = 0, [], ""
        if self.method.distill is None:
            return {}
        whole = [one for one in played if not one.rejected]
        if self.annotator is None:
            for one in whole:
                check_train(one.episode)
                text = skill_for(self.kind, one.episode.category, one.episode.task_id)
                one.skill = _as_skill(one, text, "library")
            return {"episodes": len(whole), "usable": len(whole)}
        if self.bank is not None:
            self._retrieve(whole)
        results = self.annotator.annotate([one.episode for one in whole])
        for one, result in zip(whole, results, strict=True):
            if isinstance(result, ParseFailure):
                one.why = one.why or result.reason
                continue
            self.written.append(_written(one, result))
            if self.bank is not None:
                self.bank.add(one.episode.task_id, result.text)
                self.bank.add(one.episode.category, result.text)
            else:
                one.skill = result
        failed = next((result for result in results if isinstance(result, ParseFailure)), None)
        if failed is not None and not self.written:
            self.trouble = f"{failed.kind}: {' '.join(failed.reason.split())[:160]}"
        counts = tally(results)
        return {**counts, "parse_rate": counts["usable"] / max(counts["episodes"], 1)}

    def _retrieve(self, played: Sequence[Played]) -> None:
        """Take each episode's skill out of the bank as it was before this iteration, and score it."""
        assert self.bank is not None
        for one in played:
            found = self.bank.choose(one.episode.task_id, one.episode.category)
            if found is None:
                one.why = "the bank has nothing for this task yet"
                continue
            key, entry = found
            one.skill = _as_skill(one, entry.text, "bank")
            self.bank.update(key, entry.id, one.episode.score)

    def teacher_prompt(self, played: Played, turn: int, prompt: Prompt) -> Prompt | None:
        """Return the turn's prompt with the skill in its first message, None where there is no usable skill.

        What follows the first message of a conversation are the very same tokens. A prompt that would
        exceed the model's context is not cut: the sample is not distilled.
        """
        if played.skill is None:
            return None
        text = choose_skill(played.skill.steps, played.skill.text, turn)
        first = insert_into_chat(prompt.chat[:1], text)
        if first[0].text == prompt.chat[0].text:
            return None
        if prompt.replies:
            taught = _begin_with(self.policy.prompt(first), prompt)
        else:
            taught = self.policy.prompt((*first, *prompt.chat[1:]))
        context = getattr(self.policy, "context", None)
        reply = self.settings.max_reply_tokens or get_preset(self.settings.language).max_reply_tokens
        if context is not None and taught.ids is not None and len(taught.ids) + reply > context:
            self.too_long += 1
            return None
        return taught


def _begin_with(first: Prompt, prompt: Prompt) -> Prompt:
    """Return a conversation with another first message; the ids behind it stay as they are."""
    assert first.ids is not None and prompt.ids is not None
    begin = prompt.replies[0][0]
    shift = len(first.ids) - begin
    replies = tuple((start + shift, end + shift) for start, end in prompt.replies)
    return Prompt(first.chat + prompt.chat[1:], first.ids + prompt.ids[begin:], replies)


def _written(one: Played, skill: Skill) -> dict[str, Any]:
    about = {"task_id": skill.task_id, "category": one.episode.category, "attempt": skill.attempt}
    texts = {"summary": storable(skill.summary), "text": storable(skill.text)}
    return {**about, "success": skill.success, "source": skill.source, **texts}


def _as_skill(one: Played, text: str, source: str) -> Skill:
    return Skill("", text, one.episode.task_id, one.episode.attempt, one.episode.success, source)
