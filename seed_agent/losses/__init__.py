"""Losses as pure functions over [B, T] log-probabilities in nats and bool masks; they need torch.

Every loss returns ``(loss, metrics)``; constants are named arguments with the paper's value as
default. ``docs/papers.md`` maps methods to equations and functions.
"""

from seed_agent.losses.advantages import group_advantage, opid_advantage, rlsd_advantage
from seed_agent.losses.distill import (
    gate,
    jsd_loss,
    jsd_values,
    opd_loss,
    signed_opd_loss,
    skill_sd_loss,
    skill_shift,
)
from seed_agent.losses.logprobs import TokenScores, align, head_logprobs, token_entropy, token_jsd, token_logprobs
from seed_agent.losses.policy import entropy_loss, kl_loss, kl_values, policy_loss, sft_loss
from seed_agent.losses.reduction import Metrics, Mode, denominator_of, merge_metrics, reduce
from seed_agent.losses.terms import Distilled, Scores, distill

__all__ = [
    "Distilled",
    "Metrics",
    "Mode",
    "Scores",
    "TokenScores",
    "align",
    "denominator_of",
    "distill",
    "entropy_loss",
    "gate",
    "group_advantage",
    "head_logprobs",
    "jsd_loss",
    "jsd_values",
    "kl_loss",
    "kl_values",
    "merge_metrics",
    "opd_loss",
    "opid_advantage",
    "policy_loss",
    "reduce",
    "rlsd_advantage",
    "sft_loss",
    "signed_opd_loss",
    "skill_sd_loss",
    "skill_shift",
    "token_entropy",
    "token_jsd",
    "token_logprobs",
]
