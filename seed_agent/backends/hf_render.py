"""From a chat to token ids with the model's own chat template, and what that template hides."""

import re
from collections.abc import Sequence
from typing import Any

from seed_agent.backends.hf_vision import Vision
from seed_agent.policy import Chat, Message
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


class Renderer:
    """Renders chats for one model.

    A tokenizer without a chat template gets the texts of the messages, each followed by a
    newline, with whatever the tokenizer itself puts around a text.
    """

    def __init__(self, name: str, tokenizer: Any, vision: Vision | None = None) -> None:
        """Take the tokenizer's template; ``name`` is for messages."""
        self.name, self.tokenizer, self.vision = name, tokenizer, vision
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
            raise ConfigError(f"hf:{self.name} {what}, and the prompt holds {len(images)} image(s)")
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
            raise ConfigError(f"the chat template of hf:{self.name} refuses this chat: {first}") from error

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
        }

    def _injected(self) -> str | None:
        """Return the system prompt that the template adds to a chat without one, "" for none.

        What stands before a first user message and not before a second one is no user header.
        None where that cannot be told.
        """
        if self.template is None:
            return ""
        marks = ("First words.", "Reply words.", "Second words.")
        messages = [Message("user", marks[0]), Message("assistant", marks[1]), Message("user", marks[2])]
        try:
            text = str(self._apply([self._entry(message) for message in messages], tokenize=False))
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
