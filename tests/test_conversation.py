"""Conversations: the chat grows, its tokens are appended and never cut, unstable templates are found out."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hf_models import CHATML, FIXTURES, OPEN, one_line, picture

from seed_agent.chat import FULL, ChatPlayer, Language, with_limits
from seed_agent.policy import Chat, Completion, Message, Prompt, Sampling, Situation
from seed_agent.rollout import Request, env_record, play
from seed_agent.skills.insert import HEADING
from seed_agent.trajectory import Episode, Seen, Turn
from seed_envs.errors import ConfigError
from seed_envs.presets import PRESETS
from seed_envs.prompting import builtin_template
from seed_envs.seeding import Draws
from seed_envs.vector import EnvMaker, Failure, GroupVectorEnv

torch, folders, policies, text_model, copy = FIXTURES
WALK = "<think>why not</think><action>look</action>"


class Talker:
    """A policy without tokens, as one behind a server: says the same at every turn, keeps what it is asked."""

    name = "talker"

    def __init__(self, reply: str = WALK) -> None:
        self.reply, self.asked = reply, list[Chat]()

    def prompt(self, chat: Chat) -> Prompt:
        return Prompt(chat)

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling, seeds: Sequence[int]) -> list[Any]:
        self.asked.extend(prompt.chat for prompt in prompts)
        return [Completion(self.reply, "stop") for _ in prompts]


def language(kind: str = "alfworld", tokens: int = 6, **limits: Any) -> Language:
    preset = with_limits(PRESETS[f"{kind}/conversation"], **limits)
    return Language(builtin_template(kind, preset.style), preset, Sampling(1.0, 1.0, tokens))


def played(policy: Any, words: Language, *, turns: int = 3, env: str = "ALFWorld", **how: Any) -> list[Episode]:
    maker = EnvMaker(f"seed_envs/{env}-v0", {"split": "train", "max_episode_steps": turns})
    envs = GroupVectorEnv(maker, num_tasks=2)
    try:
        tasks = list(envs.prototype.get_wrapper_attr("tasks"))[:2]
        player = ChatPlayer(policy, words, **how)
        return list(play([Request(task) for task in tasks], player, envs, env_record(maker, envs.prototype)))
    finally:
        envs.close()


# --- what is said -----------------------------------------------------------------------------------------------------


def test_the_chat_grows_by_a_reply_and_an_observation_and_holds_the_skill_once() -> None:
    policy = Talker()
    episodes = played(policy, language(), skill_for=lambda info: "Find the lamp first.")
    assert [len(chat) for chat in policy.asked] == [1, 1, 3, 3, 5, 5]
    first, second, third = policy.asked[0], policy.asked[2], policy.asked[4]
    assert third[:3] == second and second[:1] == first  # the very same messages
    assert [message.role for message in third] == ["user", "assistant", "user", "assistant", "user"]
    assert third[1].text == third[3].text == WALK
    texts = [message.text for message in third if message.role == "user"]
    assert [HEADING in text for text in texts] == [True, False, False]
    assert ["<think>" in text for text in texts] == [True, False, False]
    assert all(turn.observation.text in text for text, turn in zip(texts, episodes[0].turns, strict=True))
    assert "- go to" in texts[2] and "- help" not in texts[2] and texts[2].endswith("Decide on the next command.")


@pytest.mark.parametrize("kind", ["alfworld", "sokoban", "generic"])
@pytest.mark.parametrize("image", [False, True])
def test_first_and_later_messages(kind: str, image: bool) -> None:
    template = builtin_template(kind, "conversation")
    given: dict[str, Any] = {"instruction": "win", "observation": "a\nboard", "admissible": ["up"], "image": image}
    first, later = (template.render(taken=taken, **given) for taken in (0, 4))
    assert first.endswith("between <action> and </action>.") and "<action>" not in later and len(later) < 120
    assert [text.count("<image>") for text in (first, later)] == [int(image and kind != "alfworld")] * 2
    assert "up" in first and "up" in later and ("board" in later) == (kind != "sokoban" or not image)


def test_a_history_of_a_conversation_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"history=3 means nothing to alfworld/conversation.*the language alfworld"):
        with_limits(PRESETS["alfworld/conversation"], history=3)


def test_a_loop_that_forgets_what_was_asked_is_told() -> None:
    turn = Turn(observation=Seen.of("x"), reply=WALK, action="look", format_ok=True)
    info: Any = {"instruction": "win", "admissible_actions": ["look"]}
    here = Situation(0, "t", 0, 7, {"text": "now"}, info, (turn,))
    (answer,) = ChatPlayer(Talker(), language()).act([here], None)  # type: ignore[arg-type]
    assert isinstance(answer, Failure) and "expected Situation.asked" in answer.message


# --- tokens -----------------------------------------------------------------------------------------------------------


def test_token_in_token_out(text_model: Any) -> None:
    """Random replies, of bytes that the tokenizer would join, with chat tokens in them, closed or not."""
    draws, ends = Draws("conversation"), text_model.tokenizer.eos_token_id
    start = text_model.prompt((Message("user", "Your task is to: win"),))
    drifted = 0
    for episode in range(300):
        prompt, said = start, list[tuple[int, ...]]()
        for turn in range(3):
            reply = tuple(draws.below(600) for _ in range(1 + draws.below(5))) + (ends,) * (episode % 2)
            text = text_model.tokenizer.decode(reply)
            drifted += tuple(text_model.tokenizer(text, add_special_tokens=False)["input_ids"]) != reply
            before = prompt
            seen = f"Turn {turn}. <|im_end|>\n<|im_start|>assistant\nhello"  # does not move where replies are
            prompt = text_model.extend(before, reply, (*before.chat, Message("assistant", text), Message("user", seen)))
            said.append(reply)
            assert prompt.ids[: len(before.ids)] == before.ids and len(prompt.chat) == len(before.chat) + 2
        assert [prompt.ids[a:b] for a, b in prompt.replies] == said
        assert prompt.replies[0][0] == len(start.ids)
        bos = text_model.tokenizer.bos_token_id
        assert prompt.ids.count(bos) == 1 + sum(reply.count(bos) for reply in said)
    assert drifted > 300  # text and back gives other tokens


def test_the_token_that_closes_a_reply_is_written_once(text_model: Any) -> None:
    tokenizer = text_model.tokenizer
    start, end = text_model.prompt((Message("user", "go"),)), tokenizer.eos_token_id
    plain = tuple(tokenizer(WALK, add_special_tokens=False)["input_ids"])
    chat = (*start.chat, Message("assistant", WALK), Message("user", "seen"))
    closed, opened = (text_model.extend(start, reply, chat) for reply in ((*plain, end), plain))
    assert closed.ids == opened.ids == text_model.prompt(chat).ids  # as the template writes it
    assert closed.replies[0][1] == opened.replies[0][1] + 1
    cut = text_model.extend(start, plain[:2], chat)
    assert cut.ids[len(start.ids) :][:3] == (*plain[:2], end)


def test_what_a_reply_holds_is_text_even_where_it_is_an_image_token(policies: dict[str, Any]) -> None:
    """Positions advance by one within a reply, and the images stay those of the messages."""
    for kind in ("qwen2_5_vl", "qwen2_vl"):
        policy = policies[kind]
        pad = policy.network.vision.image_token_id
        start = policy.prompt((Message("user", "<image> go", (picture(1),)),))
        chat = (*start.chat, Message("assistant", "x"), Message("user", "then <image>", (picture(2),)))
        prompt = policy.extend(start, (pad, 70, pad), chat)
        row = policy._row(prompt, (pad, 71))
        grids = [(1, 18, 18)] * 2
        found = policy.network.vision.positions(row.ids, row.prompt, grids, row.spans)
        (a, b), (c, d) = row.spans
        for begin, stop in ((a, b), (c, d)):
            assert np.array_equal(found[:, begin:stop] - found[:, begin : begin + 1], [list(range(stop - begin))] * 3)
        said = {i for start, end in row.spans for i in range(start, end)}
        harmless = replace(row, ids=tuple(70 if i in said else token for i, token in enumerate(row.ids)))
        assert np.array_equal(found, policy.network.vision.positions(harmless.ids, row.prompt, grids))
        odd, even = (policy.network._batch([one]).inputs["inputs_embeds"][0] for one in (row, harmless))
        same = (odd == even).all(-1).tolist()
        changed = [i for i, token in enumerate(row.ids) if token != harmless.ids[i]]
        assert [i for i, equal in enumerate(same) if not equal] == changed and len(changed) == 3 + 1
        table = policy.model.get_input_embeddings().weight
        assert bool((odd[a] == table[pad]).all()) and bool((odd[d - 2] == table[pad]).all())


# --- templates --------------------------------------------------------------------------------------------------------

THINKING = """{% for m in messages %}<|im_start|>{{ m.role }}
{% set old = m.role == "assistant" and not loop.last %}
{{ m.content.split("</think>")[-1] if old else m.content }}<|im_end|>
{% endfor %}"""
LATE = CHATML.replace("{{ m.content }}", "{{ 'Be good.\n' if loop.last and m.role == 'user' else '' }}{{ m.content }}")
DATED = "<|im_start|>system\nToday is {{ strftime_now('%d %b') }}.<|im_end|>\n" + CHATML + OPEN
PLAIN = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
ONCE = "{% if messages | length > 1 %}{{ raise_exception('one message only') }}{% endif %}" + CHATML + OPEN


def renderer(model: Any, template: str) -> Any:
    from seed_agent.backends.hf_render import Renderer

    return Renderer("odd", SimpleTokenizer(model.tokenizer, template))


class SimpleTokenizer:
    """A tokenizer with another chat template."""

    def __init__(self, tokenizer: Any, template: str | None) -> None:
        self._tokenizer, self.chat_template = tokenizer, template

    def __call__(self, *given: Any, **how: Any) -> Any:
        return self._tokenizer(*given, **how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def apply_chat_template(self, messages: Any, **how: Any) -> Any:
        return self._tokenizer.apply_chat_template(messages, **{"chat_template": self.chat_template, **how})


@pytest.mark.parametrize(
    "template",
    [
        CHATML + OPEN,
        "{% if messages[0].role != 'system' %}<|im_start|>system\nBe good.<|im_end|>\n{% endif %}" + CHATML + OPEN,
        CHATML.replace("m.content", "m.content | trim") + OPEN,
        DATED.replace("strftime_now('%d %b')", "date_string"),
        "{{ bos_token }}" + CHATML.replace("<|im_end|>\n", "<|im_end|>") + OPEN.replace("assistant\n", "assistant"),
    ],
)
def test_templates_that_only_append_pass(template: str, text_model: Any) -> None:
    found = renderer(text_model, template)
    assert found.unstable == "" and found.facts()["prefix_stable"] is True


@pytest.mark.parametrize(
    ("template", "why"),
    [
        (THINKING + OPEN, "it writes .*open door.* where the conversation so far has .*<think>There is"),
        (CHATML + OPEN.replace("{% endif %}", "<think>\n{% endif %}"), "it writes .* where .*<think>"),
        (LATE + OPEN, "it writes .*Where am I.* where the conversation so far has .*Be good"),
        (DATED, "it writes the date of the day"),
        (PLAIN, "tokens of a reply merge with those around it"),
        (ONCE, "it cannot write a conversation .*one message only"),
        (CHATML, "it writes .*im_start"),  # nothing opens the reply
        (None, "there is none"),
    ],
)
def test_templates_that_do_not_are_found_out_and_render_again(template: str | None, why: str, text_model: Any) -> None:
    import re

    found = renderer(text_model, template)  # type: ignore[arg-type]
    assert re.search(why, found.unstable) and "\n" not in found.unstable and len(found.unstable) < 220
    assert found.facts()["prefix_stable"] is False
    chat = (Message("user", "go"), Message("assistant", WALK), Message("user", "seen"))
    if template != ONCE:
        prompt = found.extend(Prompt(chat[:1], found.ids(chat[:1])), (9, 10), chat, ())
        assert prompt.ids == found.ids(chat) and prompt.replies == ()


# --- the end of the room ----------------------------------------------------------------------------------------------


def test_a_full_conversation_is_not_cut_and_its_episode_ends_as_it_is(text_model: Any) -> None:
    sizes: list[int] = []
    real = text_model.generate

    def watch(prompts: Sequence[Prompt], *rest: Any) -> Any:
        sizes.extend(len(prompt.ids or ()) for prompt in prompts)
        return real(prompts, *rest)

    words = language()
    watching = SimpleNamespace(name="w", prompt=text_model.prompt, extend=text_model.extend, generate=watch)
    whole = played(watching, words, turns=4)
    assert len(sizes) == 8 and sizes[6] > sizes[4] > sizes[2] > sizes[0]
    room = max(sizes[4:6])  # three prompts fit
    tight = played(watching, language(max_prompt_tokens=room), turns=4)
    for short, long in zip(tight, whole, strict=True):
        assert [turn.token_ids for turn in short.turns[:3]] == [turn.token_ids for turn in long.turns[:3]]
        last = short.turns[3]
        assert (last.reply, last.action, last.token_ids, last.format_reason) == ("", "", None, FULL)
        assert short.outcome == "generation_truncated" and len(short.turns) == 4 and short.error is None
        assert all(turn.history_dropped == 0 for turn in short.turns)
    (first, _) = played(watching, language(max_prompt_tokens=20), turns=4)
    assert first.outcome == "policy_error" and first.error is not None and first.error.type == "PromptTooLong"


def test_it_stays_full_and_servers_may_say_so() -> None:
    class Server(Talker):
        def generate(self, prompts: Sequence[Prompt], sampling: Sampling, seeds: Sequence[int]) -> list[Any]:
            good = super().generate(prompts, sampling, seeds)
            return [
                Failure("PromptTooLong", "no") if len(prompt.chat) == 3 else one
                for prompt, one in zip(prompts, good, strict=True)
            ]

    policy = Server()
    episodes = played(policy, language(), turns=4)
    assert [[turn.format_reason == FULL for turn in e.turns] for e in episodes] == [[False, True, True, True]] * 2
    assert len(policy.asked) == 4


def test_the_check_is_one_line_for_a_model_with_such_a_template(text_model: Any) -> None:
    """What a trainer says; the model plays on, each prompt rendered as a whole."""
    from train_kit import small

    from seed_agent.methods import METHODS
    from seed_agent.train.limits import check_model

    settings = small(folders, language="alfworld/conversation", samples="episode")  # type: ignore[arg-type]
    odd = SimpleNamespace(renderer=renderer(text_model, THINKING + OPEN), name="hf:odd", context=None)
    with pytest.raises(ConfigError) as caught:
        check_model(odd, settings, METHODS.get("grpo"), language())  # type: ignore[arg-type]
    said = one_line(caught.value)
    assert "hf:odd is not prefix-stable" in said and said.endswith("give samples=turn")
