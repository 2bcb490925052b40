"""Beyond one machine: an index in shards, built, encoded and searched by a Ray cluster.

A shard is some of the segments of an index, which is the same folder for one machine or many.
"""

from glassrank.cluster.shard import LocalShards, Shard, Shards, View
from glassrank.cluster.sharded import ShardedIndex, ShardedPipeline

__all__ = ["LocalShards", "Shard", "ShardedIndex", "ShardedPipeline", "Shards", "View"]
