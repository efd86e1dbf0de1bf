"""The sentences of an ALFWorld game: its verbs and feedback, read from the game's own grammar."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from seed_envs.errors import DataError
from seed_envs.seeding import canonical, sha256_text

NOTHING_HAPPENS = "Nothing happens."
GOAL_MARK = "Your task is to: "
ACTIONS = ("GotoLocation", "OpenObject", "CloseObject", "PickupObject", "PutObject", "examineReceptacle",
           "examineObject", "CleanObject", "HeatObject", "CoolObject", "ToggleObject", "SliceObject",
           "inventory", "look", "help")  # fmt: skip
_ADDED_LATER = frozenset({"help"})  # absent from games made before version 0.4

# The conditions under which the released grammars choose a sentence, in order. The engine
# decides these cases itself; a grammar that asks anything else is refused, not guessed at.
_CASES: dict[str, tuple[str, ...]] = {
    "examineReceptacle": ("openable&opened", "openable", ""),
    "examineObject": (
        "isreceptacleobject", "isclean&ishot&issliced", "isclean&iscool&issliced", "isclean&issliced",
        "ishot&issliced", "iscool&issliced", "isclean&ishot", "isclean&iscool", "ishot", "isclean", "iscool",
        "toggleable&istoggled", "toggleable&not_istoggled", "sliceable&issliced", "",
    ),
    "inventory": ("holdsany", ""),
}  # fmt: skip


@dataclass(frozen=True)
class Grammar:
    """Command templates and feedback with ``{o}``, ``{r}``, ``{loc}`` and ``{list}`` to fill.

    ``tag`` names the grammar: ``move`` (alfworld >= 0.4), ``put`` (<= 0.3), or ``custom-`` and
    eight hex digits of its hash.
    """

    tag: str
    templates: Mapping[str, str]
    feedback: Mapping[str, str]
    examine_receptacle: tuple[str, ...]
    examine_object: tuple[str, ...]
    inventory: tuple[str, ...]
    intro: str
    facing: str
    middle: str

    @property
    def has_help(self) -> bool:
        """Whether the grammar offers ``help``."""
        return "help" in self.templates


def _released(tag: str) -> Grammar:
    """Return one of the two grammars that ALFWorld has released."""
    move = tag == "move"
    put_verb = "move {o} to {r}" if move else "put {o} in/on {r}"
    appliance = {"CleanObject": "clean", "HeatObject": "heat", "CoolObject": "cool"}
    templates = {
        "GotoLocation": "go to {r}",
        "OpenObject": "open {r}",
        "CloseObject": "close {r}",
        "PickupObject": "take {o} from {r}",
        "PutObject": put_verb,
        "examineReceptacle": "examine {r}",
        "examineObject": "examine {o}",
        **{action: f"{verb} {{o}} with {{r}}" for action, verb in appliance.items()},
        "ToggleObject": "use {o}",
        "SliceObject": "slice {co} with {ko}",
        "inventory": "inventory",
        "look": "look",
    }
    feedback = {
        "GotoLocation": f"You arrive at {{{'r' if move else 'loc'}}}. {{examine}}",
        "OpenObject": "You open the {r}. {examine}",
        "CloseObject": "You close the {r}.",
        "PickupObject": "You pick up the {o} from the {r}.",
        "PutObject": "You move the {o} to the {r}." if move else "You put the {o} in/on the {r}.",
        **{action: f"You {verb} the {{o}} using the {{r}}." for action, verb in appliance.items()},
        "ToggleObject": "You turn on the {o}.",
        "SliceObject": "You sliced the {co} with the {ko}.",
    }
    if move:
        templates["help"] = "help"
        feedback["help"] = _HELP
    states = ("hot and clean sliced", "cool and clean sliced", "clean sliced", "hot sliced", "cool sliced",
              "hot and clean", "cool and clean", "hot", "clean", "cold")  # fmt: skip
    return Grammar(
        tag=tag,
        templates=templates,
        feedback=feedback,
        examine_receptacle=(
            "The {r} is open. In it, you see {list}.",
            "The {r} is closed.",
            "On the {r}, you see {list}.",
        ),
        examine_object=(
            "This is a normal {o}. In it, you see {list}.",
            *(f"This is a {state} {{o}}." for state in states),
            "This {o} is on.",
            "This {o} is off.",
            "This is a sliced {o}.",
            "There's nothing special about {o}.",
        ),
        inventory=("You are carrying: {list}.", "You are not carrying anything."),
        intro="-= Welcome to TextWorld, ALFRED! =-\n\n{look}\n\n{task}",
        facing="You are facing the {receptacles}. Next to it, you see {list}.",
        middle="You are in the middle of a room. Looking quickly around you, you see {list}.",
    )


def _help() -> str:
    """Return the help text, aligned as upstream prints it (two lines are one column short)."""
    rows = [
        ("look", "look around your current location"),
        ("inventory", "check your current inventory"),
        ("go to (receptacle)", "move to a receptacle"),
        ("open (receptacle)", "open a receptacle"),
        ("close (receptacle)", "close a receptacle"),
        ("take (object) from (receptacle)", "take an object from a receptacle"),
        ("move (object) to (receptacle)", "place an object in or on a receptacle"),
        ("examine (something)", "examine a receptacle or an object"),
        ("use (object)", "use an object"),
        ("heat (object) with (receptacle)", "heat an object using a receptacle"),
        ("clean (object) with (receptacle)", "clean an object using a receptacle"),
        ("cool (object) with (receptacle)", "cool an object using a receptacle"),
        ("slice (object) with (object)", "slice an object using a sharp object"),
    ]
    lines = []
    for command, purpose in rows:
        width = 32 if command.startswith("move") else 34
        lines.append(f"  {command + ':':<{width}}{purpose}")
    return "Available commands:\n" + "\n".join(lines) + "\n"


_HELP = _help()
MOVE = _released("move")
PUT = _released("put")
BY_TAG = {"move": MOVE, "put": PUT}


def parse(text: str) -> tuple[Grammar, str]:
    """Read a game's ``grammar`` text; return its grammar and the goal sentence in it.

    Raises:
        DataError: when the goal sentence is absent or the text is not such a grammar.
    """
    task = re.search(r'"rhs"\s*:\s*"Your task is to: (.*?)"\s*\}', text, re.S)
    if task is None:
        raise DataError("the grammar has no goal sentence (a rule 'task' with 'Your task is to: ...')")
    goal = _unescape(task.group(1))
    if not goal.strip(" .") or goal.startswith("UNKNOWN GOAL"):
        raise DataError("the grammar's goal sentence was never filled in; expected 'Your task is to: ...'")
    return _parse_without_goal(text[: task.start(1)] + "." + text[task.end(1) :]), goal


def _unescape(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:  # a human sentence pasted in without escaping
        return text


@lru_cache(maxsize=64)
def _parse_without_goal(text: str) -> Grammar:
    rules: dict[str, list[dict[str, str]]] = {}
    for block in re.findall(r'grammar\s*::\s*"""(.*?)"""', text, re.S):
        try:
            rules.update(json.loads(block))
        except ValueError as error:
            raise DataError(f"a grammar block is not JSON ({error})") from None
    bare = re.sub(r'grammar\s*::\s*""".*?""";?', "", text, flags=re.S)
    actions = {
        name: (_line(r"template", body), _line(r"feedback", body))
        for name, body in re.findall(r"action\s+(\w+)\s*\{(.*?)\n\}", bare, re.S)
    }
    missing = [name for name in ACTIONS if name not in actions and name not in _ADDED_LATER]
    if missing:
        raise DataError(f"the grammar lacks the action {missing[0]}; expected an ALFWorld grammar of 0.3 or later")
    try:
        return _Compiler(rules, actions).grammar()
    except (KeyError, IndexError, TypeError) as error:
        raise DataError(f"the grammar lacks the rule or part {error}") from None


def _line(key: str, body: str) -> str:
    found = re.search(key + r'\s*::\s*"(.*?)"\s*;', body, re.S)
    if found is None:
        raise DataError(f"an action of the grammar has no {key}")
    return found.group(1)


class _Compiler:
    """Turn rules into the few sentence patterns the engine fills."""

    def __init__(self, rules: Mapping[str, list[dict[str, str]]], actions: Mapping[str, tuple[str, str]]) -> None:
        self.rules = rules
        self.actions = actions

    def grammar(self) -> Grammar:
        known = [name for name in ACTIONS if name in self.actions]
        templates = {name: self._template(self.actions[name][0]) for name in known}
        plain = [name for name in known if name not in _CASES and name != "look"]
        feedback = {name: self._expand(self.actions[name][1]) for name in plain}
        if "help" in feedback:
            feedback["help"] = feedback["help"].lstrip("\n")
        cases = {name: self._cases(f"{name}.feedback", wanted) for name, wanted in _CASES.items()}
        fields = {
            "templates": templates,
            "feedback": feedback,
            "examine_receptacle": cases["examineReceptacle"],
            "examine_object": cases["examineObject"],
            "inventory": cases["inventory"],
            "intro": self._intro(),
            "facing": self._facing(),
            "middle": self._lists(self.rules["look.feedback"][1]["rhs"]),
        }
        for grammar in BY_TAG.values():
            if all(getattr(grammar, key) == value for key, value in fields.items()):
                return grammar
        digest = sha256_text(canonical(fields))[:8]
        return Grammar(tag=f"custom-{digest}", **fields)  # type: ignore[arg-type]

    def _template(self, text: str) -> str:
        text = re.sub(r"\[\{(\w+)\.name \|.*?\}\]", r"{\1}", text)
        return re.sub(r"\{(\w+)\.name\}", r"{\1}", text)

    def _intro(self) -> str:
        text = self.rules["intro"][0]["rhs"]
        return text.replace("#look.feedback#", "{look}").replace("#task#", "{task}")

    def _facing(self) -> str:
        text = self.rules["look.feedback"][0]["rhs"].replace(
            "#look-variations#", self.rules["look-variations"][0]["rhs"]
        )
        text = re.sub(r"\[\{r\.name \|.*?\}\]", "{receptacles}", text)
        return self._lists(text)

    @staticmethod
    def _lists(text: str) -> str:
        text = re.sub(r"#list_\w+#", "{list}", text)
        return re.sub(r"\[\{.*?\}\]", "{list}", text)

    def _fill(self, text: str) -> str:
        """Return ``text`` with entity names as fields and lists as ``{list}``."""
        text = self._lists(text.replace("#examineReceptacle.feedback#", "{examine}"))
        text = re.sub(r"\{lend\.name\}", "{loc}", text)
        return re.sub(r"\{(\w+)\.name\}", r"{\1}", text)

    def _expand(self, feedback: str) -> str:
        symbol = re.fullmatch(r"#(.+)#", feedback.strip())
        if symbol is None:
            return self._fill(feedback)
        rule = self.rules.get(symbol.group(1))
        if not rule:
            raise DataError(f"the grammar has no rule {symbol.group(1)!r}")
        return self._fill(rule[0]["rhs"])

    def _cases(self, symbol: str, wanted: tuple[str, ...]) -> tuple[str, ...]:
        rule = self.rules.get(symbol, [])
        found = tuple("&".join(re.findall(r"(\w+)\(", case.get("condition", ""))) for case in rule)
        if found != wanted:
            raise DataError(
                f"the grammar's rule {symbol!r} asks other conditions than released games do, which this engine "
                "does not know; expected the grammar of alfworld 0.3 or 0.4"
            )
        return tuple(self._fill(case["rhs"]) for case in rule)
