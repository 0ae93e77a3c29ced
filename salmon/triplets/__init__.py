"""The first Salmon's names for offline scripts: `salmon.triplets.offline` and `salmon.triplets.samplers`.

New scripts are better served by `salmon.OrdinalEmbedding` and `salmon.samplers`, on which these stand.
"""
