"""The first Salmon's names for offline scripts: `salmon.triplets.offline` and `salmon.triplets.samplers`.

New scripts should use `salmon.OrdinalEmbedding` and `salmon.samplers`, on which these are built.
"""
