"""From a chat to token ids with the model's own chat template, and what that template hides."""

import re
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any

from seed_agent.backends.hf_vision import Vision
from seed_agent.policy import Chat, Message, Prompt
from seed_envs.errors import ConfigError
from seed_envs.prompting import IMAGE
from seed_envs.seeding import sha256_text

FIXED = {"enable_thinking": False, "date_string": "26 Jul 2024"}
"""Variables given to a template that asks for them.

Qwen3 does not think outside the reply the suite asks for; Llama 3 would print today's date,
which would change every prompt from day to day.
"""

_OPEN_THINK = re.compile(r"<think>\s*\Z")
_LONGEST_OPENING = 16
"""Tokens at the end of a prompt among which an opened think tag is looked for."""

_WORDS = ("First words.", "Reply words.", "Second words.")
_TALK = (
    Message("user", "Where am I?"),
    Message("assistant", "<think>There is a door.</think><action>open door</action>"),
    Message("user", "It is open."),
    Message("assistant", "<think>\nI go on.\n</think>\n\n<action>go out</action>"),
    Message("user", "You are out."),
)
"""What a template is tried with: replies as models write them."""


class Renderer:
    """Renders chats for one model.

    A tokenizer without a chat template gets the texts of the messages, each followed by a
    newline, with whatever the tokenizer itself puts around a text.
    """

    def __init__(self, name: str, tokenizer: Any, vision: Vision | None = None, *, kind: str = "hf") -> None:
        """Take the tokenizer's template; ``name`` and ``kind`` are for messages."""
        self.name, self.tokenizer, self.vision = f"{kind}:{name}", tokenizer, vision
        template = tokenizer.chat_template
        self.template: str | None = template.get("default") if isinstance(template, dict) else template
        self.variables = {key: value for key, value in FIXED.items() if key in (self.template or "")}

    def ids(self, chat: Chat) -> tuple[int, ...]:
        """Return the prompt's token ids, the generation prompt and all image tokens included.

        Raises:
            ConfigError: when the model or its template cannot show this chat.
        """
        images = [image for message in chat for image in message.images]
        if images and (self.vision is None or self.template is None):
            what = "is a text model" if self.vision is None else "has no chat template that could place images"
            raise ConfigError(f"{self.name} {what}, and the prompt holds {len(images)} image(s)")
        if self.template is None:
            return self._plain(chat)
        found: list[int] = self._apply([self._entry(message) for message in chat], tokenize=True, return_dict=False)
        return tuple(self.vision.expand(found, images) if self.vision else found)

    def _plain(self, chat: Chat) -> tuple[int, ...]:
        ids: list[int] = self.tokenizer("".join(f"{message.text}\n" for message in chat))["input_ids"]
        bos = self.tokenizer.bos_token_id
        doubled = bos is not None and ids[:2] == [bos, bos]  # the text brought its own
        return tuple(ids[doubled:])

    def _entry(self, message: Message) -> dict[str, Any]:
        """Return a message as templates expect it, with its images where ``<image>`` stands."""
        if self.vision is None:
            return {"role": message.role, "content": message.text}
        first, *others = message.text.split(IMAGE, len(message.images))
        if len(others) != len(message.images):
            raise ConfigError(f"a message has {len(message.images)} images and {len(others)} {IMAGE} markers")
        parts = [{"type": "text", "text": self.vision.disarm(first)}]
        for text in others:
            parts += [{"type": "image"}, {"type": "text", "text": self.vision.disarm(text)}]
        return {"role": message.role, "content": [part for part in parts if part.get("text") != ""]}

    def _apply(self, messages: Sequence[dict[str, Any]], **how: Any) -> Any:
        how = {"add_generation_prompt": True, **self.variables, **how}
        try:
            return self.tokenizer.apply_chat_template(list(messages), **how)
        except Exception as error:  # templates are programs and raise what they like
            first = " ".join((str(error).splitlines() or [""])[0].split())
            raise ConfigError(f"the chat template of {self.name} refuses this chat: {first}") from error

    def _text(self, chat: Sequence[Message], **how: Any) -> str:
        return str(self._apply([self._entry(message) for message in chat], tokenize=False, **how))

    def _between_text(self, message: Message) -> str:
        """Return what the template writes from the end of a reply to where the next one begins."""
        text = self._text((Message("user", _WORDS[0]), Message("assistant", _WORDS[1]), message))
        return text[text.index(_WORDS[1]) + len(_WORDS[1]) :]

    def between(self, message: Message) -> tuple[int, ...]:
        """Return the ids from the end of a reply to where the next one begins: ``message`` and what is around it.

        Raises:
            ConfigError: when the model or its template cannot show the message.
        """
        if message.images and self.vision is None:
            raise ConfigError(f"{self.name} is a text model, and the message holds {len(message.images)} image(s)")
        ids: list[int] = self.tokenizer(self._between_text(message), add_special_tokens=False)["input_ids"]
        return tuple(self.vision.expand(ids, message.images) if self.vision else ids)

    def extend(self, prompt: Prompt, reply: Sequence[int], chat: Chat, ends: Collection[int]) -> Prompt:
        """Return the prompt of ``chat``: ``prompt``'s, and behind it a reply and another message.

        The ids of ``prompt`` and of the reply stay as they are; the token that the template closes a
        reply with is not repeated where the reply ends with it. A template that is not prefix-stable
        renders the whole chat again.

        Args:
            prompt: What was asked.
            reply: The token ids that were sampled, at least one.
            chat: ``prompt``'s, the reply's text and the new message.
            ends: The token ids that end a reply.

        Raises:
            ConfigError: when the model or its template cannot show the chat.
        """
        if prompt.ids is None or self.unstable:
            return Prompt(chat, self.ids(chat))
        start, between = len(prompt.ids), self.between(chat[-1])
        closed = reply[-1] in ends and between[:1] == (reply[-1],)
        ids = (*prompt.ids, *reply, *between[closed:])
        return Prompt(chat, ids, (*prompt.replies, (start, start + len(reply))))

    @cached_property
    def unstable(self) -> str:
        """Why a conversation cannot grow by appending to its tokens, "" where it can.

        It can where the template writes earlier messages the same whatever follows, replies letter by
        letter, and the same tokens between a reply and the next whatever they say.
        """
        if self.template is None:
            return "there is none"
        try:
            return self._moving_date() or next((odd for n in (1, 3) if (odd := self._odd(_TALK[: n + 2]))), "")
        except (ConfigError, ValueError) as error:
            return f"it cannot write a conversation ({error})"

    def _odd(self, chat: Chat) -> str:
        """Say how ``chat`` differs from the one two messages shorter, its reply and what stands between."""
        before, between, text = self._text(chat[:-2]), self._between_text(chat[-1]), self._text(chat)
        expected, reply = before + chat[-2].text + between, text[len(before) : len(text) - len(between)]
        if text != expected and not (text == before + reply + between and reply.strip() == chat[-2].text):
            at = next((i for i, (a, b) in enumerate(zip(expected, text, strict=False)) if a != b), len(text))
            shown = slice(max(at - 24, 0), at + 24)
            return f"it writes {text[shown]!r} where the conversation so far has {expected[shown]!r}"
        ids, head, tail = self.ids(chat), self.ids(chat[:-2]), self.between(chat[-1])
        if ids[: len(head)] != head or ids[len(ids) - len(tail) :] != tail:
            return "tokens of a reply merge with those around it"
        return ""

    def _moving_date(self) -> str:
        """Say so when the template writes the date of the day."""
        template, clock = self.template or "", "{%% macro strftime_now(form) %%}%s{%% endmacro %%}"
        if "strftime_now" not in template:
            return ""
        days = {self._text(_TALK[:1], chat_template=clock % day + template) for day in ("one day", "another")}
        return "it writes the date of the day" if len(days) > 1 else ""

    def opening(self, ids: Sequence[int]) -> str:
        """Return the think tag (and the blanks after it) that a prompt leaves open, else "".

        The reply's text begins with it, so that the reply is well-formed; its token ids do not:
        they are what was sampled.
        """
        found = _OPEN_THINK.search(self.tokenizer.decode(list(ids[-_LONGEST_OPENING:])))
        return found[0] if found else ""

    def facts(self) -> dict[str, Any]:
        """Return the template's hash, the variables it got and the text it adds of its own."""
        return {
            "chat_template_sha256": None if self.template is None else sha256_text(self.template),
            "chat_template_variables": self.variables,
            "injected_prompt": self._injected(),
            "prefix_stable": not self.unstable,
        }

    def _injected(self) -> str | None:
        """Return the system prompt that the template adds to a chat without one, "" for none.

        What stands before a first user message and not before a second one is no user header.
        None where that cannot be told.
        """
        if self.template is None:
            return ""
        marks = _WORDS
        messages = [Message("user", marks[0]), Message("assistant", marks[1]), Message("user", marks[2])]
        try:
            text = self._text(messages)
        except ConfigError:
            return None
        first, reply, second = (text.find(mark) for mark in marks)
        if not 0 <= first < reply < second:
            return None
        head, between = text[:first], text[reply + len(marks[1]) : second]
        common = 0
        while common < min(len(head), len(between)) and head[-common - 1] == between[-common - 1]:
            common += 1
        return head[: len(head) - common].replace(self.tokenizer.bos_token or "\0", "").strip()


class Rendering:
    """What policies of a model at hand share: prompts in its own template, as token ids."""

    renderer: Renderer
    _ends: frozenset[int]

    def prompt(self, chat: Chat) -> Prompt:
        """Render ``chat`` with the model's own template; the ids hold every image token.

        Raises:
            ConfigError: when the model or its template cannot show the chat.
        """
        return Prompt(chat, self.renderer.ids(chat))

    def extend(self, prompt: Prompt, reply: Sequence[int], chat: Chat) -> Prompt:
        """Return the prompt of ``chat``: ``prompt``'s, and behind it a reply and a message; see `Renderer.extend`.

        Raises:
            ConfigError: when the model or its template cannot show the chat.
        """
        return self.renderer.extend(prompt, reply, chat, self._ends)
