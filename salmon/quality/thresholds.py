"""The thresholds by which participants are flagged, and where each comes from.

"Ours" means that no publication gives the value: it was chosen for Salmon, after the uses that are named. A flag never
excludes anybody by itself; the experimenter decides.
"""

# Catch trials
#: Flagged below this share right. tripletTools, an R package for such experiments, excludes above 20 % wrong.
CATCH_ACCURACY = 0.8
#: With fewer catch trials one slip decides (ours).
CATCH_LEAST = 5

# Response times
#: Flagged below this geometric mean, too fast to look at three targets (ours; tripletTools takes an arithmetic mean
#: below 1,000 ms, which participants who have practised the keys can reach honestly).
GEOMETRIC_MEAN_MS = 500.0
#: An answer faster than this leaves no time to see and move (ours, after simple reaction times of 200-250 ms).
FAST_MS = 300.0
#: Flagged above this share of such answers (ours).
FAST_SHARE = 0.10

# Completeness
#: Flagged below this share of the queries that were requested (ours; tripletTools requires 510 of 620).
COMPLETENESS = 0.8

# Agreement with others, and with oneself
#: With fewer queries that others have answered too, agreement says nothing (ours).
AGREEMENT_LEAST = 10
#: Flagged below the agreement that this share of pure guessers stay below.
CHANCE_QUANTILE = 0.95
#: How many scaled median absolute deviations below the group make an outlier (Leys, Ley, Klein, Bernard and Licata 2013).
DEVIATIONS = 3.0
#: Makes the median absolute deviation an estimate of the standard deviation of a normal distribution.
MAD_SCALE = 1.4826
#: Outliers are looked for among at least this many participants (ours).
GROUP_LEAST = 5
#: Flagged below this share of repeated queries answered as before (ours).
REPEAT_CONSISTENCY = 0.6
#: With fewer repeated queries consistency says nothing (ours).
REPEATS_LEAST = 10

# Sides
#: Flagged if a fair coin leans to one side as much with less than this probability (ours, strict: thousands are tested).
SIDE_P = 0.001
#: Flagged if one side was chosen more often than this in a row (ours; from any start, 16 in a row have the probability
#: 1 in 65,536).
LONGEST_RUN = 15

# Transitivity
#: The share of three comparisons under one head that cannot be ordered, if a coin answers: 2 of 8 outcomes.
CYCLES_BY_CHANCE = 0.25
