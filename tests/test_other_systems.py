"""Systems without descriptors of folders, as Windows: an index works without what they lack."""

import subprocess
import sys
from pathlib import Path

import pytest

TAKEN_AWAY = """
import os, sys, types
import numba, numpy.random, onnxruntime, tempfile, tokenizers  # which ask this system, not that one

for name in ("O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC"):
    delattr(os, name)
os.supports_dir_fd = set()
del os.fwalk, os.register_at_fork, os.sched_getaffinity, os.getuid
for name in ("open", "mkdir", "rename", "replace", "unlink", "rmdir", "stat"):
    def by_path(*given, _plain=getattr(os, name), **more):
        assert not {"dir_fd", "src_dir_fd", "dst_dir_fd"} & set(more), more
        return _plain(*given, **more)
    setattr(os, name, by_path)

held = {}
def locking(descriptor, mode, count):
    key = os.fstat(descriptor).st_ino
    if held.get(key, descriptor) != descriptor:
        raise OSError("held")
    held[key] = descriptor
sys.modules["fcntl"] = None
sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2, __spec__=None)
"""

USED = """
from pathlib import Path
import glassrank as gr
from glassrank.errors import CorruptError
from glassrank.models.io.load import load_for_inference
from glassrank.embeddings import encode_index

folder = Path(sys.argv[1])
docs = [gr.Doc("a", "a cat on a mat"), gr.Doc("b", "a dog and a cat")]
index = gr.Index.build(docs, folder / "my.index")
index.add([gr.Doc("c", "a bird")])
index.delete(["b"])
encode_index(index, load_for_inference("fast"))
search = gr.Pipeline(gr.Index(folder / "my.index"), gr.load("fast"))
assert search.store is not None
assert [hit.doc_id for hit in search("cat")] == ["a", "c"]

from glassrank.storage.folders import Folder
with Folder.open(folder) as opened:
    opened.write("old", b"1")
    (folder / "link").symlink_to(folder / "old")
    for use in (opened.open_file, opened.child):
        try:
            use("link")
        except CorruptError:
            continue
        raise AssertionError("a link was followed")
print("works")
"""


@pytest.mark.long
def test_an_index_is_made_changed_and_searched_there(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TAKEN_AWAY + USED, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.endswith("works\n")
