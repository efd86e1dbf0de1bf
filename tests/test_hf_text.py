"""``hf:``: from a chat to tokens and from tokens to a reply (P21, P25)."""

from pathlib import Path
from typing import Any

import pytest
from hf_models import CHATML, FIXTURES, OPEN, chat, dictate, one_line, texts_only

from seed_agent.backends.hf import HFPolicy
from seed_agent.policy import MODELS, Message, Sampling
from seed_envs.errors import ConfigError

torch, folders, policies, text_model, copy = FIXTURES

# --- rendering (P25) --------------------------------------------------------------------------------------------------


def test_prompts_are_what_the_tokenizer_s_own_template_renders(text_model: Any) -> None:
    messages = [
        ("system", "Be brief."),
        ("user", "Where is the mug?\n  two blanks"),
        ("assistant", "<think>x</think>"),
        ("user", "?"),
    ]
    found = text_model.prompt(tuple(Message(role, text) for role, text in messages))  # type: ignore[arg-type]
    own = text_model.tokenizer.apply_chat_template(
        [{"role": role, "content": text} for role, text in messages],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
    )
    assert list(found.ids) == own
    assert found.ids.count(text_model.tokenizer.bos_token_id) == 1 and found.ids[0] == text_model.tokenizer.bos_token_id
    assert text_model.tokenizer.decode(own).endswith("<|im_start|>assistant\n")


TEMPLATES = {
    "default system prompt": (
        "{% if messages[0].role != 'system' %}<|im_start|>system\nYou are Tiny.<|im_end|>\n{% endif %}" + CHATML + OPEN,
        {},
        "<|im_start|>system\nYou are Tiny.",
    ),
    "dated system prompt": (
        "{{ bos_token }}{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
        "<|im_start|>system\nToday: {{ date_string }}<|im_end|>\n" + CHATML + OPEN,
        {"date_string": "26 Jul 2024"},
        "<|im_start|>system\nToday: 26 Jul 2024",
    ),
    "thinking switch": (
        CHATML + OPEN + "{% if add_generation_prompt and enable_thinking is defined and not enable_thinking %}"
        "<think>\n\n</think>\n\n{% endif %}",
        {"enable_thinking": False},
        "",
    ),
    "none injected": (CHATML + OPEN, {}, ""),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_what_a_template_adds_is_recorded(copy: Path, name: str) -> None:
    template, variables, injected = TEMPLATES[name]
    (copy / "chat_template.jinja").write_text(template)
    policy: Any = MODELS.get("hf")(str(copy))
    facts = policy.facts()
    assert facts["chat_template_variables"] == variables
    assert facts["injected_prompt"] == injected
    own = policy.tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], add_generation_prompt=True, return_dict=False, **variables
    )
    assert list(policy.prompt(chat("hi")).ids) == own
    assert policy.renderer.opening(own) == ""  # a think block that is closed again is no prefix


def test_the_template_hash_follows_the_template(text_model: Any, copy: Path) -> None:
    same: Any = MODELS.get("hf")(str(copy))
    assert same.facts()["chat_template_sha256"] == text_model.facts()["chat_template_sha256"]
    (copy / "chat_template.jinja").write_text(CHATML + OPEN)
    other: Any = MODELS.get("hf")(str(copy))
    assert other.facts()["chat_template_sha256"] != text_model.facts()["chat_template_sha256"]


def test_a_model_without_a_template_gets_the_plain_text_and_one_bos(copy: Path) -> None:
    (copy / "chat_template.jinja").unlink()
    policy: Any = MODELS.get("hf")(str(copy))
    ids = policy.prompt((Message("system", "Rules."), Message("user", "Go."))).ids
    assert policy.tokenizer.decode(list(ids)) == "<|bos|>Rules.\nGo.\n"
    doubled = policy.prompt(chat("<|bos|>Go.")).ids
    assert doubled.count(policy.tokenizer.bos_token_id) == 1
    assert policy.facts()["chat_template_sha256"] is None


def test_a_template_that_refuses_a_chat_is_one_line(copy: Path) -> None:
    (copy / "chat_template.jinja").write_text("{{ raise_exception('roles must alternate') }}" + CHATML)
    policy: Any = MODELS.get("hf")(str(copy))
    with pytest.raises(ConfigError, match="refuses this chat: roles must alternate") as caught:
        policy.prompt(chat("hi"))
    one_line(caught.value)
    assert policy.facts()["injected_prompt"] is None


# --- text and tokens (P21) --------------------------------------------------------------------------------------------


def test_sampled_ids_are_kept_and_never_encoded_again(text_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """ "<action>" in single letters is a valid sample although the tokenizer writes it shorter."""
    text = "<action>look</action>"
    letters = [token for (token,) in texts_only(text_model, list(text))]
    (shorter,) = texts_only(text_model, [text])
    assert len(shorter) < len(letters) == len(text)
    dictate(text_model, monkeypatch, letters)
    (reply,) = text_model.generate([text_model.prompt(chat("hi"))], Sampling(), [0])
    assert reply.token_ids == tuple(letters) and reply.text == text
    assert len(text_model.score([text_model.prompt(chat("hi"))], [reply.token_ids])[0]) == len(letters)


def test_a_stop_string_ends_the_text_and_is_kept(text_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, end = text_model.tokenizer, text_model.tokenizer.eos_token_id
    (opened, closed, more) = texts_only(text_model, ["<action>go</act", "ion", ">."])
    joined = [
        t for t in range(len(tokenizer)) if tokenizer.decode([t]).startswith(">") and len(tokenizer.decode([t])) > 1
    ]
    assert joined, "the tokenizer has no token that carries more than the end of a tag"
    rows = [
        (*opened, *closed, joined[0], 400),
        (*opened, *closed, *more, 400),
        (*opened, end, 400),
        opened,
    ]
    dictate(text_model, monkeypatch, *rows)
    prompt = text_model.prompt(chat("hi"))
    found = [text_model.generate([prompt], Sampling(max_tokens=50), [0])[0] for _ in rows[:3]]
    assert found[0].token_ids == rows[0][:-1]
    assert tokenizer.decode(found[0].token_ids) != found[0].text == "<action>go</action>"
    assert found[1].text == "<action>go</action>" and found[1].token_ids[:-1] == (*opened, *closed)
    assert found[2].text == "<action>go</act" and found[2].token_ids == (*opened, end)
    assert [reply.stop_reason for reply in found] == ["stop"] * 3
    (cut,) = text_model.generate([prompt], Sampling(max_tokens=len(opened)), [0])
    assert cut.stop_reason == "length" and cut.text == "<action>go</act"


def test_every_end_token_of_the_generation_config_ends_a_reply(
    text_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (words, end) = texts_only(text_model, ["look", "!"])
    monkeypatch.setattr(text_model.model.generation_config, "eos_token_id", [3, *end])
    policy = HFPolicy("again", text_model.model, text_model.tokenizer)
    dictate(policy, monkeypatch, (*words, *end, 400), (*words, 3, 400))
    for last in (end[0], 3):
        (reply,) = policy.generate([policy.prompt(chat("hi"))], Sampling(), [0])
        assert (reply.text, reply.token_ids, reply.stop_reason) == ("look", (*words, last), "stop")


def test_the_first_of_several_stop_strings_counts(text_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (ids,) = texts_only(text_model, ["a</search>b</action>"])
    dictate(text_model, monkeypatch, ids)
    sampling = Sampling(stop=("</action>", "</search>"))
    assert text_model.generate([text_model.prompt(chat("hi"))], sampling, [0])[0].text == "a</search>"


def test_real_sampling_stops_at_the_token_that_completes_a_stop_string(text_model: Any) -> None:
    prompt = text_model.prompt(chat("go to desk 1"))
    whole = text_model.generate([prompt], Sampling(max_tokens=30, stop=()), [3])[0]
    assert whole.stop_reason == "length" and len(whole.token_ids) == 30
    middle = text_model.tokenizer.decode(whole.token_ids[10:13])
    stopped = text_model.generate([prompt], Sampling(max_tokens=30, stop=(middle,)), [3])[0]
    assert stopped.token_ids == whole.token_ids[:13]
    assert stopped.text == whole.text[: whole.text.index(middle) + len(middle)]


@pytest.mark.parametrize("opened", ["<think>", "<think>\n"])
def test_a_think_tag_opened_by_the_template_belongs_to_the_reply(
    copy: Path, monkeypatch: pytest.MonkeyPatch, opened: str
) -> None:
    from seed_envs.parsing import strict

    (copy / "chat_template.jinja").write_text(CHATML + OPEN + "{% if add_generation_prompt %}" + opened + "{% endif %}")
    policy: Any = MODELS.get("hf")(str(copy))
    (ids,) = texts_only(policy, ["the mug</think><action>look</action>"])
    prompt = policy.prompt(chat("hi"))
    real = policy.generate([prompt], Sampling(max_tokens=4), [0])[0]
    assert real.text.startswith("<think>") and len(real.token_ids) == 4
    dictate(policy, monkeypatch, ids)
    (reply,) = policy.generate([prompt], Sampling(), [0])
    assert reply.token_ids == ids
    parsed = strict(reply.text)
    assert parsed.format_ok and parsed.action == "look" and parsed.thought == "the mug"
