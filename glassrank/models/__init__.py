"""One file for each family of models, one contract for all."""

from dataclasses import dataclass

from glassrank.models.bert import BERT, BERTConfig
from glassrank.models.co_pacrr import CoPACRR, CoPACRRConfig
from glassrank.models.contract import Output, Ranker, TokenBatch, Words, WordTable
from glassrank.models.conv_knrm import ConvKNRM, ConvKNRMConfig
from glassrank.models.duet import Duet, DuetConfig
from glassrank.models.ensemble import Ensemble
from glassrank.models.kernel_bert import KernelBERT, KernelBERTConfig
from glassrank.models.knrm import KNRM, KNRMConfig
from glassrank.models.late_interaction import LateInteractionConfig
from glassrank.models.matchpyramid import MatchPyramid, MatchPyramidConfig
from glassrank.models.maxsim import MaxSim
from glassrank.models.mores import MORES, MORESConfig
from glassrank.models.pacrr import PACRR, PACRRConfig
from glassrank.models.pieces import PieceRanker
from glassrank.models.rpacrr import RPACRR, RPACRRConfig
from glassrank.models.single_vector import SingleVector, SingleVectorConfig
from glassrank.models.subwords import SubwordTable
from glassrank.models.tk import TK, TKConfig
from glassrank.models.tk_windowed import TKWindowed, TKWindowedConfig


@dataclass(frozen=True)
class Family:
    """A model and the dataclass that configures it."""

    model: type[Ranker]
    config: type


MODELS: dict[str, Family] = {
    "tk": Family(TK, TKConfig),
    "tk_windowed": Family(TKWindowed, TKWindowedConfig),
    "knrm": Family(KNRM, KNRMConfig),
    "conv_knrm": Family(ConvKNRM, ConvKNRMConfig),
    "matchpyramid": Family(MatchPyramid, MatchPyramidConfig),
    "duet": Family(Duet, DuetConfig),
    "pacrr": Family(PACRR, PACRRConfig),
    "co_pacrr": Family(CoPACRR, CoPACRRConfig),
    "rpacrr": Family(RPACRR, RPACRRConfig),
    "bert": Family(BERT, BERTConfig),
    "mores": Family(MORES, MORESConfig),
    "kernel_bert": Family(KernelBERT, KernelBERTConfig),
    "maxsim": Family(MaxSim, LateInteractionConfig),
    "single_vector": Family(SingleVector, SingleVectorConfig),
}

__all__ = [
    "MODELS",
    "Ensemble",
    "Family",
    "Output",
    "PieceRanker",
    "Ranker",
    "SubwordTable",
    "TokenBatch",
    "WordTable",
    "Words",
]
