"""Search: Lucene's BM25 without Java, real Lucene, dense vectors, and search servers, behind one interface.

``BM25Index`` ranks documents by their number; a ``Retriever`` gives passages and takes batches of
queries. What is heavy (Java, torch, FAISS, a web server) is imported when it is used.
"""

from seed_envs.search.analysis import analyze
from seed_envs.search.bm25 import BM25Index, build_index
from seed_envs.search.passages import Passage, Passages, read_corpus
from seed_envs.search.postings import Hit
from seed_envs.search.retrievers import BM25Retriever, RetrievalError, Retriever, build_retriever, open_retriever
from seed_envs.search.store import Manifest

__all__ = [
    "BM25Index",
    "BM25Retriever",
    "Hit",
    "Manifest",
    "Passage",
    "Passages",
    "RetrievalError",
    "Retriever",
    "analyze",
    "build_index",
    "build_retriever",
    "open_retriever",
    "read_corpus",
]
