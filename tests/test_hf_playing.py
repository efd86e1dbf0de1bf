"""``hf:``: tiny models at the table, in ALFWorld and in Sokoban."""

import json
from typing import Any

import gymnasium as gym
import pytest
from hf_models import FIXTURES, chat, dictate, texts_only

from seed_agent.chat import ChatPlayer, Language
from seed_agent.policy import Completion, Prompt, Sampling
from seed_agent.rollout import Request, env_record, play
from seed_agent.trajectory import Episode, Image
from seed_envs.presets import get_preset
from seed_envs.prompting import builtin_template
from seed_envs.vector import EnvMaker, GroupVectorEnv

torch, folders, policies, text_model, copy = FIXTURES


def language(preset: str, **sampling: Any) -> Language:
    found = get_preset(preset)
    return Language(builtin_template(found.kind), found, Sampling(**sampling))


def played(policy: Any, maker: EnvMaker, words: Language, count: int = 2, batch: int = 2, **how: Any) -> list[Episode]:
    env = maker()
    tasks = env.get_wrapper_attr("tasks")
    record = env_record(maker, env)
    env.close()
    envs = GroupVectorEnv(maker, num_tasks=batch)
    try:
        requests = [Request(task) for task in list(tasks)[:count]]
        episodes = list(play(requests, ChatPlayer(policy, words), envs, record, **how))
    finally:
        envs.close()
    return sorted(episodes, key=lambda episode: episode.key)


ALFWORLD = EnvMaker("seed_envs/ALFWorld-v0", {"split": "valid_seen", "max_episode_steps": 2})


def test_a_text_model_plays_alfworld(text_model: Any) -> None:
    words = language("alfworld", temperature=0.8, max_tokens=12)
    episodes = played(text_model, ALFWORLD, words)
    assert [len(episode.turns) for episode in episodes] == [2, 2]
    for turn in [turn for episode in episodes for turn in episode.turns]:
        assert turn.token_ids and turn.logp and len(turn.token_ids) == len(turn.logp) <= 12
        assert turn.stop_reason in ("stop", "length") and turn.action == "" and not turn.format_ok
    again = played(text_model, ALFWORLD, words)
    alone = played(text_model, ALFWORLD, words, batch=1)
    assert [e.sha256 for e in again] == [e.sha256 for e in episodes]
    assert [[t.token_ids for t in e.turns] for e in alone] == [[t.token_ids for t in e.turns] for e in episodes]
    assert json.loads(episodes[0].to_line())["turns"][0]["token_ids"] == list(episodes[0].turns[0].token_ids or ())


def test_a_reply_cut_by_length_executes_nothing_unless_its_action_is_complete(
    text_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = EnvMaker("seed_envs/ALFWorld-v0", {"split": "valid_seen", "max_episode_steps": 1})
    for text, action in [
        ("<think>x</think><action>look", ""),
        ("<think>x</think><action>look</action>", "look"),
        ("<think>x</think>", ""),
    ]:
        (ids,) = texts_only(text_model, [text])
        dictate(text_model, monkeypatch, ids)
        words = language("alfworld", max_tokens=len(ids), stop=())
        (episode,) = played(text_model, maker, words, count=1, batch=1)
        (turn,) = episode.turns
        assert (turn.stop_reason, turn.action, turn.reply) == ("length", action, text)
        assert turn.format_ok == bool(action)


def test_a_vision_model_plays_sokoban(policies: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    if "hf/Sokoban-v0" not in gym.registry:
        gym.register("hf/Sokoban-v0", entry_point="seed_envs.sokoban.env:SokobanEnv", max_episode_steps=2)
    maker, policy = EnvMaker("hf/Sokoban-v0", {"split": "seen"}), policies["qwen2_5_vl"]
    shown: list[Any] = []
    asked: list[Prompt] = []

    def keep(image: Any) -> Image:
        shown.append(image)
        return Image(file_sha256="0", pixels_sha256="0")

    prompt = policy.prompt
    monkeypatch.setattr(policy, "prompt", lambda chat: asked.append(prompt(chat)) or asked[-1])
    episodes = played(policy, maker, language("sokoban", max_tokens=8), save_image=keep)
    assert [len(episode.turns) for episode in episodes] == [2, 2]
    assert not any(episode.error for episode in episodes)
    assert all(turn.observation.images and turn.token_ids for episode in episodes for turn in episode.turns)
    assert shown[0].shape == (96, 96, 3)
    assert [prompt.ids.count(policy.model.config.image_token_id) for prompt in asked if prompt.ids] == [81] * 4


def test_a_completion_is_what_the_record_keeps(text_model: Any) -> None:
    reply = text_model.generate([text_model.prompt(chat("hi"))], Sampling(max_tokens=3), [2**62 + 1])[0]
    assert isinstance(reply, Completion)
    assert all(type(token) is int for token in reply.token_ids) and all(type(nats) is float for nats in reply.logp)
