"""The thresholds by which participants are flagged, and where each comes from.

"Ours" means that no publication gives the value: it was chosen for Salmon, after the uses that are named. A flag never
excludes anybody by itself; the experimenter decides. docs/quality.md has the error rates that were measured with them.
"""

# The rule
#: Flagged if a careful person looks as careless with less than this probability (ours).
FLAG_P = 0.04
#: Proposed for exclusion below this probability (ours), unless the answers are better than a guesser's.
EXCLUDE_P = 0.004
#: Where nothing tells whether the answers are better than a guesser's: only below this probability (ours).
EXCLUDE_BLIND_P = 1e-5
#: Better than a guesser's if a guesser does as well with less than this probability (ours).
BETTER_P = 0.01
#: The answers go against the map if a guesser fits as badly with less than this probability (ours).
AGAINST_P = 0.001
#: A single sign is named below this probability, where a flag is raised at all (ours).
SIGN_P = 0.05
#: How much each sign counts in the combination; 1 where nothing is said. What answers the question itself counts more
#: than how it was answered (ours).
WEIGHTS = {"fit": 4.0, "agreement": 3.0, "catch": 3.0, "repeats": 2.0}

# Groups
#: What is usual is estimated from at least this many participants (ours).
GROUP_LEAST = 5
#: Makes the median absolute deviation an estimate of the standard deviation of a normal distribution.
MAD_SCALE = 1.4826

# Catch trials
#: The share of catch trials that careful people answer rightly (ours; tripletTools, an R package for such experiments,
#: excludes above 20 % wrong).
CATCH_RIGHT = 0.95

# Response times
#: An answer faster than this leaves no time to see and move (ours, after simple reaction times of 200-250 ms).
FAST_MS = 300.0
#: The share of such answers that careful people give (ours).
FAST_USUAL = 0.02
#: The geometric mean of response times that is taken as usual in too small a group (ours).
USUAL_MS = 1500.0
#: The least standard deviation between careful people of the logarithm of their response times (ours): with it a third
#: of the usual time has the probability .001.
TIME_SPREAD = 0.35

# Completeness
#: Said below this share of the queries that were requested (ours; tripletTools requires 510 of 620).
COMPLETENESS = 0.8

# Agreement with others, and with oneself
#: With fewer queries that others have answered too, agreement says nothing (ours).
AGREEMENT_LEAST = 10
#: `agreement_by_chance` is the agreement that this share of pure guessers stay below.
CHANCE_QUANTILE = 0.95
#: With fewer repeated queries consistency says nothing (ours).
REPEATS_LEAST = 10

# Fit
#: With fewer answers the fit to the map says nothing (ours).
FIT_LEAST = 10

# Hesitation
#: With fewer timed answers the correlation of times with margins says nothing (ours).
HESITATION_LEAST = 20

# Transitivity
#: The share of three comparisons under one head that cannot be ordered, if a coin answers: 2 of 8 outcomes.
CYCLES_BY_CHANCE = 0.25
