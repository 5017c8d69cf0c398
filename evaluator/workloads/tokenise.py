"""Run as a program: tokenizer JSON on stdin; arguments: the file to write, then the texts."""

import json
import os
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer  # after the setting above, which it reads at import

    target = Path(sys.argv[1])
    tokenizer = Tokenizer.from_str(sys.stdin.buffer.read().decode("utf-8"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    texts = [tokens_of(tokenizer, Path(name).read_text("utf-8")) for name in sys.argv[2:]]
    stored = {
        "opening": tokenizer.encode("").ids,
        "texts": [ids for ids, _ in texts],
        "starts": [starts for _, starts in texts],
    }
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    draft.write_text(json.dumps(stored))
    draft.replace(target)


def tokens_of(tokenizer: Any, text: str) -> tuple[list[int], list[int]]:
    """Token ids of a text, and the indices of those that begin a word (or a line)."""
    ids: list[int] = []
    starts: list[int] = []
    for paragraph in text.split("\n\n"):
        part = paragraph + "\n\n"
        encoded = tokenizer.encode(part, add_special_tokens=False)
        for token, (begin, end) in zip(encoded.ids, encoded.offsets, strict=True):
            piece = part[begin:end]
            before = part[begin - 1] if begin else " "
            if piece.strip() and (piece[0].isspace() or before.isspace()):
                starts.append(len(ids))
            ids.append(token)
    if not starts:
        raise SystemExit("it gives no token for the shipped texts")
    return ids, starts


if __name__ == "__main__":
    main()
