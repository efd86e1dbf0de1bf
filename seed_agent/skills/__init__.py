"""Skills: what an episode teaches, in a few sentences, and how that text reaches a prompt."""
