"""Beyond one machine: an index in shards, built, encoded and searched by a Ray cluster.

An index is the same folder whether one machine reads it or many do: a shard is some of its
segments. So all that changes an index, or reads it, does so with one that a cluster has made, and
results are the same to the last byte.
"""

from glassrank.cluster.shard import LocalShards, Shard, Shards, View
from glassrank.cluster.sharded import ShardedIndex, ShardedPipeline

__all__ = ["LocalShards", "Shard", "ShardedIndex", "ShardedPipeline", "Shards", "View"]
