"""The harness: evaluation runs, their records and their numbers."""
