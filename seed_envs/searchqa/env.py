"""``seed_envs/SearchQA-v0``: answer a question by searching a collection of passages."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from seed_envs import paths
from seed_envs.core import AgentEnv, View
from seed_envs.errors import ConfigError, SeedError, UnknownName
from seed_envs.searchqa import dialects, scoring
from seed_envs.searchqa.asking import Question
from seed_envs.searchqa.embedded import EmbeddedQuestions
from seed_envs.searchqa.official import OfficialQuestions
from seed_envs.searchqa.retrieval import Searcher, open_searcher
from seed_envs.searchqa.sources import TEST, QuestionSource
from seed_envs.tasks import Task, resolve_split

if TYPE_CHECKING:
    from seed_envs.search.passages import Passage

BACKENDS = ("bm25", "pyserini", "dense", "http")
PARITIES = ("none", "verl_agent")
TOP_K = 3
MAX_QUERY = 2_000
"""Characters; a longer query is refused, so that no reply can break a search server."""
REFUSED = "Nothing happens."
HOW = "Type search[your query] to look something up, or answer[your answer] to end."


def make_source(data: str) -> QuestionSource:
    """Return the questions that ``data`` names; see ``SearchQAEnv``.

    Raises:
        DataError: when a folder holds no questions.
    """
    return EmbeddedQuestions() if data == "embedded" else OfficialQuestions(_root(data))


def _root(data: str) -> Path:
    return paths.data_root("searchqa") if data == "official" else Path(data).expanduser()


class SearchQAEnv(AgentEnv):
    """A question is answered by searching a collection of passages and saying what it is.

    ## Description
    The protocol of Search-R1, verl-agent and SEED: some searches, then one answer, scored by exact
    match. The embedded questions are about an encyclopedia of things that do not exist, so nobody
    can answer them from memory.

    ## Action Space
    ``search[QUERY]`` or ``answer[ANSWER]``, verbatim. Anything else, an empty argument or a query
    of more than 2,000 characters is refused: nothing changes and the turn is spent.

    ## Observation Space
    ``Dict(text)``. At first the question and the two actions; after a search two lines a passage,
    ``Doc 1: "Title"`` and its text, the best first. Markers in a passage that a parser or a chat
    template would read are escaped (``&lt;answer>``).

    ## Starting State
    The question; no passages.

    ## Rewards
    At the answer 1 for an exact match, otherwise 0; nothing before.

    ## Episode End
    Terminated by an answer; truncated by the turn limit (4; ``max_episode_steps`` overrides).

    ## Information
    The keys of ``seed_envs.core.Info``. ``score`` is the exact match, ``success`` whether it is 1.
    ``extra`` holds ``data_source`` (the question's set), ``documents`` (ids of the passages shown
    now) and ``em``, ``sub_em``, ``f1`` of the answer (0 before).

    ## Arguments
    ``data``: ``embedded`` (generated), ``official`` (``$SEED_DATA/searchqa``) or a folder laid out
    like it. ``split``: ``train`` (two sets), ``seen`` (other questions of the same two), ``unseen``
    (five other sets), or ``test`` (both). ``retriever``: ``bm25`` (over the passages of ``data``),
    ``bm25:DIR``, ``pyserini:DIR``, ``dense:DIR`` or ``http:URL``. ``top_k``: passages a search
    shows. ``search_turns``: the turns in which a search is made, later ones are refused (upstream
    makes none in the last turn). ``parity="verl_agent"``: see ``docs/searchqa.md``. ``render_mode``: ``ansi``.

    ## Version History
    v0: scoring of Search-R1 a14dc3a with the exceptions that ``docs/searchqa.md`` lists.
    """

    version = "0"
    splits: ClassVar[tuple[str, ...]] = ("train", "seen", "unseen")
    split_groups: ClassVar[Mapping[str, tuple[str, ...]]] = {TEST: ("seen", "unseen")}
    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012

    def __init__(
        self,
        *,
        data: str = "embedded",
        split: str = "train",
        retriever: str = "bm25",
        top_k: int = TOP_K,
        search_turns: int | None = None,
        parity: str = "none",
        render_mode: str | None = None,
    ) -> None:
        """Open questions and passages; see the class for the arguments.

        Raises:
            UnknownName: for an unknown split, parity or render mode.
            ConfigError: for an unknown retriever or a number out of range.
            DataError: when questions, passages or an index are missing or torn.
            MissingDependency: when a retriever's package is not installed.
        """
        if parity not in PARITIES:
            raise UnknownName("parity", parity, PARITIES)
        if render_mode not in (None, "ansi"):
            raise UnknownName("render mode", render_mode, ["ansi"])
        if type(top_k) is not int or not 1 <= top_k <= 100:
            raise ConfigError(f"top_k={top_k!r} is no number of passages; expected 1 to 100")
        if search_turns is not None and (type(search_turns) is not int or search_turns < 0):
            raise ConfigError(f"search_turns={search_turns!r} is no number of turns; expected 0 or more")
        self.render_mode = render_mode
        self.top_k, self.search_turns = top_k, search_turns
        self._as_upstream = parity == "verl_agent"
        self._source = make_source(str(data))
        self.split = resolve_split(split, (*self._source.splits, TEST))
        self.tasks = self._source.tasks(self.split)
        self._retriever = (str(retriever), "embedded" if data == "embedded" else str(_root(str(data))))
        _ = self.searcher  # what is missing is said here, not in the middle of an episode
        self._question: Question | None = None
        self._shown: tuple[Passage, ...] = ()
        self._searched: set[str] = set()
        """Queries made and passages shown, for the oracle."""
        self._text = ""

    @classmethod
    def split_names(cls, *, data: str = "embedded", **kwargs: Any) -> tuple[str, ...]:
        """Return the splits of ``data`` that have no task in common."""
        return tuple(make_source(str(data)).splits)

    @classmethod
    def prepare_steps(cls, steps: Sequence[tuple["SearchQAEnv", str]]) -> None:
        """Make the searches of several environments in one batch per retriever."""
        batches: dict[tuple[tuple[str, str], int], list[str]] = {}
        for env, action in steps:
            verb, argument = dialects.read_action(action) or ("", "")
            if verb == "search" and not env._refusal(verb, argument, env._turn + 1):
                batches.setdefault((env._retriever, env.top_k), []).append(argument)
        for (name, k), queries in batches.items():
            open_searcher(*name).prepare(queries, k)

    @property
    def searcher(self) -> Searcher:
        """The retriever, which the environments of a process share."""
        return open_searcher(*self._retriever)

    def identity(self) -> dict[str, Any]:
        """Add the hash of the passages, where it is known."""
        return {**super().identity(), "data_sha256": self.searcher.data_sha256}

    def notices(self) -> list[str]:
        """Say how questions on disk differ from the release."""
        odd = self._source.differences(self.split)
        return [f"{self.split}: {', '.join(odd)} questions of the release"] if odd else []

    def _begin(self, task: Task, seed: int) -> View:
        self._question = self._source.load(task)
        self._shown, self._searched = (), set()
        self.instruction = self._question.text
        return self._view(f"{self.instruction}\n{HOW}")

    def _act(self, action: str) -> View:
        verb, argument = dialects.read_action(action) or ("", "")
        refusal = self._refusal(verb, argument, self._turn)
        if refusal:
            return self._view("" if self._as_upstream else REFUSED, admissible=False, effective=False, reason=refusal)
        if verb == "answer":
            return self._answer(argument)
        before, text = self._shown, self._search(argument)
        return self._view(text, admissible=True, effective=self._shown != before)

    def _refusal(self, verb: str, argument: str, turn: int) -> str:
        """Return why an action is refused; "" when it is not."""
        if not verb:
            return "no such action; expected search[query] or answer[answer]"
        if not argument.strip() and not self._as_upstream:
            return f"the {verb} is empty; expected {verb}[...] with a text in the brackets"
        if verb == "search" and len(argument) > MAX_QUERY:
            return f"the query has {len(argument)} characters; expected at most {MAX_QUERY}"
        if verb == "search" and self.search_turns is not None and turn > self.search_turns:
            return f"no more searches after turn {self.search_turns}; expected answer[...]"
        try:
            argument.encode()
        except UnicodeEncodeError:
            return "the text holds half of a surrogate pair, which is no character"
        return ""

    def _search(self, query: str) -> str:
        """Search and return what is shown; a server's failure is an error, upstream's a result."""
        try:
            found = self.searcher.search(query, self.top_k)
        except SeedError as error:
            if not self._as_upstream:
                raise
            return f"Search error: {error}"
        self._shown = found or ()
        self._searched |= {query, *(passage.id for passage in self._shown)}
        if self._as_upstream:
            return dialects.NOTHING if found is None else dialects.verbatim(passage.contents for passage in found)
        return dialects.documents((p.title, p.text) for p in self._shown) or dialects.NOTHING

    def _answer(self, answer: str) -> View:
        assert self._question is not None
        scores = scoring.scores(answer, self._question.answers, reference=self._as_upstream)
        won = scores["em"] == 1
        judged: dict[str, Any] = {"reward": scores["em"], "success": won, "score": scores["em"], "terminated": True}
        return self._view("", scores, admissible=True, effective=True, **judged)

    def _view(self, text: str, scores: Mapping[str, float] | None = None, **judged: Any) -> View:
        assert self._question is not None
        self._text = text
        extra = {
            "data_source": self._question.style,
            "documents": [passage.id for passage in self._shown],
            **(scores or dict.fromkeys(scoring.METRICS, 0.0)),
        }
        return View(text, extra=extra, **judged)

    def oracle(self) -> list[str]:
        """Return the searches that are still to be made and the golden answer.

        Where nobody knows which searches a question needs, the question is the only one.
        """
        if self._question is None:
            raise ConfigError("the oracle needs a running episode; call reset() first")
        hops = [(hop.query, hop.passage) for hop in self._question.hops] or [(self._question.text[:MAX_QUERY], "")]
        queries = [query for query, passage in hops if not {query, passage} & self._searched]
        return [*(dialects.write_action("search", query) for query in queries), self._golden()]

    def _golden(self) -> str:
        """Return the first golden answer that the scoring can match."""
        assert self._question is not None
        answers = self._question.answers
        return dialects.write_action("answer", next((a for a in answers if scoring.em(a, answers)), answers[0]))

    def suggestions(self) -> list[str]:
        """Return the searches and answers that need no thought: the question, and the titles shown."""
        titles = dict.fromkeys(passage.title for passage in self._shown if passage.title)
        searches = [self.instruction[:MAX_QUERY], *titles]
        answers = [*titles, "yes", "no"]
        return [dialects.write_action("search", text) for text in searches] + [
            dialects.write_action("answer", text) for text in answers
        ]

    def render(self) -> str | None:
        """Return the last observation in ``ansi`` mode."""
        return self._text if self.render_mode == "ansi" else None
