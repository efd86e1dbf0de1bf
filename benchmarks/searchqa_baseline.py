"""The simplest search agent on real questions: search the question, answer the title of the best passage.

    python benchmarks/searchqa_baseline.py --data ROOT [--split test] [--top-k 3]

ROOT holds question sets and passages as ``$SEED_DATA/searchqa`` does; the passages are indexed at the
first run. Prints, per set, the number of questions, exact match, sub-match and F1 of that answer, and
in how many questions a golden answer stands in the passages shown: what a perfect reader could reach
with this one search. The table of docs/searchqa.md is this program's.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from seed_envs.searchqa import scoring
from seed_envs.searchqa.asking import Question
from seed_envs.searchqa.official import OfficialQuestions
from seed_envs.searchqa.retrieval import open_searcher

COLUMNS = (*scoring.METRICS, "answer shown")


def measure(question: Question, titles_and_texts: list[tuple[str, str]]) -> dict[str, float]:
    """Return the scores of the best title and whether an answer is among the passages."""
    answer = titles_and_texts[0][0] if titles_and_texts else ""
    shown = " ".join(f"{title} {text}" for title, text in titles_and_texts)
    found = scoring.sub_em(shown, question.answers)
    return {**scoring.scores(answer, question.answers), "answer shown": found}


def main() -> None:
    """Run the baseline over every question of a split."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with SET/test.jsonl and corpus/*.jsonl")
    parser.add_argument("--split", default="test", help="train, seen, unseen or test")
    parser.add_argument("--top-k", type=int, default=3, help="passages shown")
    args = parser.parse_args()
    questions = OfficialQuestions(args.data).questions(args.split)
    searcher = open_searcher("bm25", str(args.data))
    start, rows = time.process_time(), []
    for question in questions.values():
        found = searcher.search(question.text, args.top_k) or ()
        rows.append((question.style, measure(question, [(p.title, p.text) for p in found])))
    seconds = time.process_time() - start
    counts = Counter(name for name, _ in rows)
    results = {column: scoring.pooled((name, row[column]) for name, row in rows) for column in COLUMNS}
    out = [f"| set | questions | {' | '.join(COLUMNS)} |", f"|---|--:|{'--:|' * len(COLUMNS)}"]
    for name, count in sorted(counts.items()):
        out.append(f"| {name} | {count:,} | {' | '.join(f'{100 * results[c][0][name]:.1f}' for c in COLUMNS)} |")
    out.append(f"| macro mean | {len(counts)} sets | {' | '.join(f'{100 * results[c][1]:.1f}' for c in COLUMNS)} |")
    out.append(f"| pooled | {len(rows):,} | {' | '.join(f'{100 * results[c][2]:.1f}' for c in COLUMNS)} |")
    sys.stdout.write("\n".join(out) + "\n")
    sys.stdout.write(f"\npassages: {searcher.data_sha256}; {1e3 * seconds / len(rows):.2f} ms of CPU a question\n")


if __name__ == "__main__":
    main()
