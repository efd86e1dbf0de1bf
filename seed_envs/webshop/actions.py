"""The action language of WebShop: ``search[words]`` and ``click[what]``."""

from typing import NamedTuple

SEARCH, CLICK = "search", "click"


class Command(NamedTuple):
    """An action taken apart; ``argument`` is None where the action has no brackets."""

    name: str
    argument: str | None


def read(action: str) -> Command:
    r"""Take an action apart exactly as upstream's ``(.+)\[(.+)\]`` does, in linear time.

    The last pair of brackets of the first line counts, with a text before it and one in it. What
    follows is ignored; the argument is lower-cased, the name is not, and no blanks are cut off.
    """
    line = action.split("\n", 1)[0]
    closing = line.rfind("]")
    opening = line.rfind("[", 1, closing - 1) if closing > 2 else -1
    if opening < 0:
        return Command(action, None)
    return Command(line[:opening], line[opening + 1 : closing].lower())


def click(what: str) -> str:
    """Return the action that clicks a text; ``reachable`` says whether there is one."""
    return f"{CLICK}[{what}]"


def reachable(what: str) -> bool:
    """Whether an action can name a text: most that hold ``[`` and all with a line end can't be named."""
    return read(click(what)) == (CLICK, what)
