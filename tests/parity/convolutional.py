"""MatchPyramid and DUET from the authors' weights."""

from collections.abc import Callable

from glassrank.models.torch_models import Ranker
from glassrank.research.papers.duet import Duet
from glassrank.research.papers.matchpyramid import MatchPyramid
from tests.parity.authors import Description, Weights, load, rename, tk_authors

_PYRAMID = (
    (r"conv_layers\.conv (\d)\.(\w+)", r"convolutions.\1.\2"),
    (r"dense\.(\w+)", r"dense.0.\1"),
    (r"dense2\.(\w+)", r"dense.2.\1"),
    (r"dense3\.(\w+)", r"dense.4.\1"),
)
# The dense parts are numbered as in the original notebook: their flattening layer is 1 to 3 more.
_DUET = (
    (r"duet_local\.0\.(\w+)", r"local.\1"),
    (r"duet_local\.4\.(\w+)", r"local_dense.1.\1"),
    (r"duet_local\.7\.(\w+)", r"local_dense.4.\1"),
    (r"duet_dist_q\.0\.(\w+)", r"query.\1"),
    (r"duet_dist_q\.4\.(\w+)", r"query_dense.\1"),
    (r"duet_dist_d\.0\.(\w+)", r"doc.\1"),
    (r"duet_dist_d\.3\.(\w+)", r"doc_windows.\1"),
    (r"duet_dist\.2\.(\w+)", r"distributed_dense.1.\1"),
    (r"duet_dist\.5\.(\w+)", r"distributed_dense.4.\1"),
    (r"duet_comb\.(\d)\.(\w+)", r"combine.\1.\2"),
)


def matchpyramid(description: Description, weights: Weights) -> Ranker:
    return load(MatchPyramid(tk_authors(MatchPyramid)), rename(weights, _PYRAMID))


def duet(description: Description, weights: Weights) -> Ranker:
    hidden = description["hyper"]["hidden"]
    return load(Duet(tk_authors(Duet, size=hidden, hidden=hidden)), rename(weights, _DUET))


BUILDERS: dict[str, Callable[[Description, Weights], Ranker]] = {
    "matchpyramid": matchpyramid,
    "duet": duet,
}
