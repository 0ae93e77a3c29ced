"""The defaults by which participants are flagged, each with where it comes from. "Ours" means: chosen by us, after the uses named."""

#: Catch trials: flagged below this share right. tripletTools, the lab's R package, excludes above 20 % wrong.
CATCH_ACCURACY = 0.8
#: With fewer catch trials one slip decides (ours).
CATCH_LEAST = 5
#: Geometric mean of response times below which nobody has looked at three targets (ours; tripletTools' filter takes a
#: mean below 1,000 ms, which quick participants with practised keys can reach honestly).
GEOMETRIC_MEAN_MS = 500.0
#: A single answer below this is quicker than seeing and moving allow (ours, after simple reaction times of 200-250 ms).
FAST_MS = 300.0
#: Flagged above this share of such answers (ours).
FAST_SHARE = 0.10
#: Flagged below this share of what was asked for (ours; tripletTools asks for 510 of 620).
COMPLETENESS = 0.8
#: Shared queries that others have answered, below which agreement says nothing (ours).
AGREEMENT_LEAST = 10
#: Agreement is compared with what this share of pure guessers stay below.
CHANCE_QUANTILE = 0.95
#: How many scaled median absolute deviations below the group make an outlier (Leys, Ley, Klein, Bernard and Licata 2013).
DEVIATIONS = 3.0
#: Makes the median absolute deviation an estimate of the standard deviation of a normal distribution.
MAD_SCALE = 1.4826
#: Fewer participants are no group (ours).
GROUP_LEAST = 5
#: Flagged below this share of repeated queries answered as before (ours).
REPEAT_CONSISTENCY = 0.6
REPEATS_LEAST = 10
#: Flagged when a fair coin would lean to one side as much with less than this chance (ours, strict: thousands are tested).
SIDE_P = 0.001
#: Flagged when one side was chosen more often than this in a row (ours; 16 in a row have the chance 1 in 65,536 from any start).
LONGEST_RUN = 15
#: Of three comparisons under one head that close a circle, a coin makes this share impossible to order: 2 of 8 outcomes.
CYCLES_BY_CHANCE = 0.25
