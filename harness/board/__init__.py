"""The leaderboards: reported tables, measured rows, their page."""
