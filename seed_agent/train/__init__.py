"""The compact trainer: stage 1 (hindsight skills) and stage 2 (reinforcement learning with distillation)."""
