"""Skills written by a language model: the policy itself, another local model, one behind a server."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from seed_agent.policy import MODELS, Chat, Completion, Policy, Sampling, split_spec
from seed_agent.skills.analyzer import EpisodeTooLong, analyze, check_train, schema
from seed_agent.skills.annotators import Options
from seed_agent.skills.parse import parse_skill
from seed_agent.skills.skill import ParseFailure, Skill
from seed_agent.skills.text import neutralise
from seed_agent.trajectory import Episode
from seed_envs.errors import ConfigError, UnknownName
from seed_envs.seeding import derive
from seed_envs.vector import Failure

RETRIES = 2
"""How often a model behind a server is asked again (published); the policy itself never is."""

_TAIL = 2_000
"""Characters of a bad answer that the model is shown again."""

_AGAIN = """

Your previous answer could not be used: {reason}.
It ended with:
{tail}

Answer again, with JSON only, in exactly this form:
{schema}"""


def make(rest: str, options: Options) -> "ModelAnnotator":
    """Make the annotator of ``model:KIND:NAME``: a model policy that is asked once.

    Raises:
        ConfigError: when the policy's specification is malformed.
        UnknownName: when there is no such kind of model.
    """
    kind, name = split_spec(rest)
    if kind not in MODELS:
        raise UnknownName("model policy", kind, MODELS)
    return ModelAnnotator(MODELS.get(kind)(name), options)


def make_openai(rest: str, options: Options) -> "ModelAnnotator":
    """Make the annotator of ``openai:MODEL@URL``, which asks again where an answer cannot be read.

    Raises:
        ConfigError: when the model, the URL or an option cannot be used.
    """
    return ModelAnnotator(MODELS.get("openai")(rest), options, retries=RETRIES)


@dataclass(frozen=True, slots=True)
class _Question:
    place: int
    episode: Episode
    chat: Chat
    again: str = ""

    @property
    def full(self) -> Chat:
        """The chat with what is said about the previous answer."""
        return (*self.chat[:-1], replace(self.chat[-1], text=self.chat[-1].text + self.again))


class ModelAnnotator:
    """Asks a model for every skill, greedily, with the analyzer's prompt."""

    def __init__(self, policy: Policy, options: Options | None = None, *, retries: int = 0) -> None:
        """Ask ``policy``, and again up to ``retries`` times where its answer cannot be used."""
        self.policy, self.options, self.retries = policy, options or Options(), retries
        self.name = policy.name

    def fits(self, chat: Chat) -> bool:
        """Whether a prompt is short enough, in tokens where the policy counts them, else in characters."""
        ids = self.policy.prompt(chat).ids
        if ids is None:
            return sum(len(message.text) for message in chat) <= self.options.max_prompt_chars
        return len(ids) <= self.options.max_prompt_tokens

    def annotate(self, episodes: Sequence[Episode]) -> list[Skill | ParseFailure]:
        """Return one result per episode, in order.

        A request that fails for good, an episode without turns or too long and an answer without a
        usable skill are failures in their places.

        Raises:
            Contaminated: for an episode outside the training split, before anything is asked.
            ConfigError: when the options or the model cannot do this at all.
        """
        if not self.options.evaluation:
            for episode in episodes:
                check_train(episode)
        size = self.options.batch
        chunks = (episodes[start : start + size] for start in range(0, len(episodes), size))
        return [result for chunk in chunks for result in self._annotate(chunk)]

    def _annotate(self, episodes: Sequence[Episode]) -> list[Skill | ParseFailure]:
        results: dict[int, Skill | ParseFailure] = {}
        asked: list[_Question] = []
        for place, episode in enumerate(episodes):
            chat = self._chat(episode)
            if isinstance(chat, ParseFailure):
                results[place] = chat
            else:
                asked.append(_Question(place, episode, chat))
        for attempt in range(self.retries + 1):
            again = []
            for question, answer in zip(asked, self._answers(asked, attempt), strict=True):
                results[question.place] = result = self._read(question.episode, answer)
                if isinstance(result, ParseFailure) and isinstance(answer, Completion):
                    again.append(replace(question, again=self._complaint(result, answer.text)))
            asked = again
            if not asked:
                break
        return [results[place] for place in range(len(episodes))]

    def _chat(self, episode: Episode) -> Chat | ParseFailure:
        if not episode.turns:
            return ParseFailure("empty", "the episode has no turns")
        options = self.options
        try:
            return analyze(
                episode,
                images=options.images,
                fits=self.fits,
                step_skills=options.step_skills,
                evaluation=options.evaluation,
            ).chat
        except EpisodeTooLong as error:
            return ParseFailure("too_long", str(error))

    def _answers(self, asked: Sequence[_Question], attempt: int) -> Sequence[Completion | Failure]:
        if not asked:
            return []
        sampling = Sampling(temperature=0.0, max_tokens=self.options.max_reply_tokens, stop=())
        prompts = [self.policy.prompt(question.full) for question in asked]
        seeds = [derive("annotate", question.episode.seed, attempt) for question in asked]
        try:
            answers = self.policy.generate(prompts, sampling, seeds)
        except ConfigError:
            raise
        except Exception as error:  # whatever a model's code raises costs these skills, not the run
            return [Failure.of(error)] * len(asked)
        if len(answers) != len(asked):
            wrong = Failure("PolicyError", f"the model gave {len(answers)} answers to {len(asked)} prompts")
            return [wrong] * len(asked)
        return answers

    def _read(self, episode: Episode, answer: Completion | Failure) -> Skill | ParseFailure:
        if isinstance(answer, Failure):
            return ParseFailure("call_failed", f"{answer.type}: {answer.message}")
        options = self.options
        fields = parse_skill(answer.text, max_chars=options.max_skill_chars, max_steps=options.step_skills)
        if isinstance(fields, ParseFailure):
            cut = f"; it was cut after {options.max_reply_tokens} tokens" if answer.stop_reason == "length" else ""
            return ParseFailure(fields.kind, fields.reason + cut)
        return Skill(
            summary=fields.summary,
            text=fields.text,
            task_id=episode.task_id,
            attempt=episode.attempt,
            success=episode.success,
            source=self.name,
            cut=fields.cut,
            markers=fields.markers,
            steps=fields.steps,
        )

    def _complaint(self, failure: ParseFailure, answer: str) -> str:
        tail = neutralise(answer[-_TAIL:], reply_tags=False)[0]
        return _AGAIN.format(reason=failure.reason, tail=tail, schema=schema(self.options.step_skills))
