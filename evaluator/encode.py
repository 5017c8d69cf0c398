"""Run as a program: `{"tokenizer": JSON text, "texts": [...]}` on stdin, token ids on stdout.

A process of its own, as the tokenizer would double the evaluator's memory. The first list is what
the tokenizer puts before every text.
"""

import json
import os
import sys


def main() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer  # after the setting above, which it reads at import

    given = json.load(sys.stdin)
    tokenizer = Tokenizer.from_str(given["tokenizer"])
    tokenizer.no_truncation()
    tokenizer.no_padding()
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in given["texts"]]
    json.dump([tokenizer.encode("").ids, *ids], sys.stdout)


if __name__ == "__main__":
    main()
