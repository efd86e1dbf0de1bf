"""``seed_envs/WebShop-v0``: find and buy what an instruction asks for."""

from collections.abc import Mapping
from typing import Any, ClassVar

from seed_envs.core import AgentEnv, View
from seed_envs.errors import ConfigError, UnknownName
from seed_envs.tasks import Task, resolve_split
from seed_envs.webshop import engine, oracle, pages
from seed_envs.webshop.actions import click, reachable
from seed_envs.webshop.goals import Goal
from seed_envs.webshop.lucene import with_lucene
from seed_envs.webshop.manifests import SPLITS
from seed_envs.webshop.reward import SCORING_VERSION, Score, score
from seed_envs.webshop.sources import best_score, open_goals
from seed_envs.webshop.tagger import get_tagger

OBSERVATIONS = ("text", "text_rich")
SEARCHES = ("bm25", "pyserini")
BACKENDS = SEARCHES
_PARTS = ("r_type", "r_att", "r_option", "r_price", "title_score")


class WebShopEnv(AgentEnv):
    """A shop in text: find a product that an instruction asks for, choose its options, buy it.

    ## Description
    The pages, search, goals and rewards of WebShop without its web server, Java and spaCy. The
    embedded shop sells a thousand generated products; the official files are read where they are.

    ## Action Space
    ``search[words]`` or ``click[what]``, verbatim; upper case in the brackets is read as lower.
    A search is possible on every page. ``info["admissible_actions"]`` lists what can be clicked, and
    is None on the search page, where any words will do. Anything else is refused: nothing changes
    and the turn is spent.

    ## Observation Space
    ``Dict(text)``. ``observation="text"``: the texts of the page joined by `` [SEP] ``, which do not
    show what was chosen; ``"text_rich"``: a line each, with marks on what can be clicked and was.

    ## Starting State
    The search page with the instruction.

    ## Rewards
    WebShop's score of the purchase, 0 to 1, when something is bought; nothing before.

    ## Episode End
    Terminated by ``click[buy now]``; truncated by the turn limit (15; ``max_episode_steps`` overrides).

    ## Information
    The keys of ``seed_envs.core.Info``. ``score`` is the reward and ``success`` whether it is exactly
    1. ``extra`` holds ``page`` (kind of page), ``asin`` (product looked at), ``options`` (chosen, by
    name), ``results`` (products found), ``ceiling`` (what the goal's own product is worth; 1 for
    most), and ``r_type``, ``r_att``, ``r_option``, ``r_price``, ``title_score`` of the purchase
    (None before).

    ## Arguments
    ``data``: ``embedded`` (generated), ``official`` (``$SEED_DATA/webshop``) or a folder of official
    files. ``profile`` of official files: ``small-synthetic`` (1,000 products, 6,910 goals: what SEED
    and verl-agent use), ``small-human`` or ``full-human`` (12,087 goals). ``split``: ``train``, ``dev``,
    ``test`` (alias ``seen``), and ``unseen`` of embedded data. ``split_scheme``: ``fixed`` or
    ``verl_agent`` with ``worker_seed``, see ``docs/webshop.md``. ``search``: ``bm25`` or ``pyserini``.
    ``tagger``: what finds the nouns of titles for the score: ``light`` or ``spacy``.
    ``show_attributes``: a fourth sub-page, as upstream's option. ``render_mode``: ``ansi`` or ``html``.

    ## Version History
    v0: pages and scores of princeton-nlp/WebShop 64fa2a5.
    """

    version = "0"
    splits: ClassVar[tuple[str, ...]] = SPLITS
    metadata = {"render_modes": ["ansi", "html"], "render_fps": 1}  # noqa: RUF012

    def __init__(
        self,
        *,
        data: str = "embedded",
        profile: str = "small-synthetic",
        split: str | None = None,
        split_scheme: str = "fixed",
        worker_seed: int = 0,
        observation: str = "text",
        search: str = "bm25",
        tagger: str = "light",
        show_attributes: bool = False,
        render_mode: str | None = None,
    ) -> None:
        """Open goals and products; see the class for the arguments.

        Raises:
            UnknownName: for an unknown profile, split, scheme, observation, search, tagger or render mode.
            ConfigError: when arguments do not go together.
            DataError: when files are missing or torn.
            MissingDependency: when spaCy or pyserini is asked for and not installed.
        """
        for kind, value, known in (("observation", observation, OBSERVATIONS), ("search backend", search, SEARCHES)):
            if value not in known:
                raise UnknownName(kind, value, known)
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UnknownName("render mode", render_mode, self.metadata["render_modes"])
        self.render_mode = render_mode
        self._rich, self._attributes = observation == "text_rich", bool(show_attributes)
        get_tagger(tagger)  # what is missing is said here, not at the first purchase
        self._tagger = tagger
        self._source = open_goals(str(data), profile, split_scheme, worker_seed)
        self._shop = self._source.shop if search == "bm25" else with_lucene(self._source.shop)
        self.split = resolve_split(split or self._source.splits[0], self._source.splits)
        self.tasks = self._source.tasks(self.split)
        self._goal: Goal | None = None
        self._ceiling = 1.0
        self._visit: engine.Visit | None = None
        self._state = engine.State()
        self._bought: Score | None = None

    @classmethod
    def split_names(
        cls,
        *,
        data: str = "embedded",
        profile: str = "small-synthetic",
        split_scheme: str = "fixed",
        worker_seed: int = 0,
        **kwargs: Any,
    ) -> tuple[str, ...]:
        """Return the splits of these goals."""
        return tuple(open_goals(str(data), profile, split_scheme, worker_seed).splits)

    def identity(self) -> dict[str, Any]:
        """Add the shop's hash, and what the score depends on to the version."""
        version = f"{self.version}+{SCORING_VERSION}-{self._tagger}"
        return {**super().identity(), "version": version, "data_sha256": self._shop.sha256}

    def ceiling(self, task: Task) -> float:
        """Return what the goal's own product with the options asked for is worth."""
        return best_score(self._source, task)

    def notices(self) -> list[str]:
        """Say which goals cannot be reached, what leaks and how files differ from the release."""
        return self._source.notices(self.split)

    def _begin(self, task: Task, seed: int) -> View:
        self._goal = self._source.goal(task)
        self._ceiling = best_score(self._source, task)
        self.instruction = self._goal.instruction
        self._visit = engine.Visit(self._shop, self.instruction, self._rate, seed, self._attributes)
        self._state, self._bought = engine.State(), None
        return self._view()

    def _act(self, action: str) -> View:
        assert self._visit is not None
        before, outcome = self._state, engine.step(self._visit, self._state, action)
        self._state = outcome.state
        if self._state.page == engine.DONE:
            self._bought = self._rated(self._state.asin, dict(self._state.options))
        return self._view(admissible=outcome.admissible, effective=self._state != before, reason=outcome.reason)

    def _rated(self, asin: str, options: Mapping[str, str]) -> Score:
        assert self._goal is not None
        product = self._shop.product(asin)
        return score(product, self._goal, options, self._source.price(product), get_tagger(self._tagger))

    def _rate(self, asin: str, options: Mapping[str, str]) -> float:
        return self._rated(asin, options).reward

    def _text(self, *, rich: bool) -> str:
        assert self._visit is not None
        found = pages.parts(self._visit, self._state)
        return pages.text_rich(found, self._state) if rich else pages.text(found)

    def _view(self, **judged: Any) -> View:
        state, bought = self._state, self._bought
        return View(
            text=self._text(rich=self._rich),
            admissible_actions=self._offered(),
            reward=state.score,
            terminated=bought is not None,
            success=bought is not None and bought.success,
            score=state.score,
            extra={
                "page": state.page,
                "asin": state.asin,
                "options": dict(state.options),
                "results": len(state.results),
                "ceiling": self._ceiling,
                **{name: None if bought is None else getattr(bought, name) for name in _PARTS},
            },
            **judged,
        )

    def _offered(self) -> list[str] | None:
        assert self._visit is not None
        if self._state.page == engine.INDEX:
            return None
        return sorted({click(text) for text in engine.clickables(self._visit, self._state) if reachable(text)})

    def oracle(self) -> list[str]:
        """Return the fewest actions that buy the goal's own product with what was asked for.

        For the goals whose ceiling is below 1 that is the best there is, but no success.

        Raises:
            Unreachable: when no search finds the product.
        """
        if self._visit is None or self._goal is None:
            raise ConfigError("the oracle needs a running episode; call reset() first")
        return oracle.plan(self._visit, self._state, self._goal)

    def suggestions(self) -> list[str]:
        """Return searches for the search page: the words of the instruction, all of them and without its price."""
        if self._visit is None:
            raise ConfigError("suggestions need a running episode; call reset() first")
        if self._state.page != engine.INDEX:
            raise NotImplementedError("on this page the actions are listed")
        return [f"search[{oracle.typed(text)}]" for text in (self.instruction, oracle.wish(self.instruction))]

    def render(self) -> str | None:
        """Return the page as lines of text (``ansi``) or as a page for a browser (``html``)."""
        if self._visit is None or self.render_mode is None:
            return None
        if self.render_mode == "ansi":
            return self._text(rich=True)
        from seed_envs.webshop.html import page

        return page(self._visit, self._state)
