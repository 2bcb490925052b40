"""What the packaged models give some texts, live and from stores; as a program, it prints them."""

import json
import sys
from pathlib import Path

import glassrank as gr
from glassrank.backends.cpu import amx
from glassrank.embeddings import Store, encode_index, store_folder
from glassrank.models.io.model_folder import PACKAGED

QUERY = "how do I read a csv file?"
TEXTS = (
    "A csv file is read by csv.reader, row by row.",
    "Dogs bark at night, and cats read nothing.",
    "open() returns a file object; read() gives all of it, as text or bytes. " * 9,
    "json.load reads a file of another format.",
    "file",
)


def packaged_scores(folder: Path) -> dict[str, float]:
    """Of each model, each way to keep words, and each text."""
    index = gr.Index.build([gr.Doc(str(n), text) for n, text in enumerate(TEXTS)], folder)
    scores: dict[str, float] = {}
    for name in PACKAGED:
        model = gr.load(name)
        ways = {"live": gr.Pipeline(index, model, use_store=False)}
        for dtype in ("int8", "bf16"):
            path = store_folder(index.path, f"{name}-{dtype}")
            encode_index(index, model.saved, path, dtype)
            store = Store.open(path, model.model, index.snapshot)
            ways[dtype] = gr.Pipeline(index, model, store=store)
        for way, pipeline in ways.items():
            scores |= {f"{name} {way} {hit.doc_id}": hit.score for hit in pipeline(QUERY)}
    return scores


if __name__ == "__main__":
    assert not amx.usable()
    print(json.dumps(packaged_scores(Path(sys.argv[1]))))
