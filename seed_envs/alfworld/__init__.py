"""ALFWorld: household tasks in text, played natively or by TextWorld."""
