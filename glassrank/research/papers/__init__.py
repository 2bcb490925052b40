"""Models of papers: TK, KNRM, CONV-KNRM, MatchPyramid, DUET, PACRR, CO-PACRR, RPACRR, BERT, MORES,
ensembles. They follow the contract of `glassrank.models`, whose registry finds them by name."""
