"""The command line of ``seed_envs``: one module per command."""
