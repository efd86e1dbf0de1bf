"""Agents: policies, the rollout loop and the episode record."""
