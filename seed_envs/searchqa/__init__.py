"""SearchQA: questions that are answered by searching a collection of passages."""
