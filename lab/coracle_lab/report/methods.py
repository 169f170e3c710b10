"""The methods that the page names, each with what it does and its reference."""

from __future__ import annotations

METHODS = (
    (
        "Ratio and its intervals",
        "Each block gives the logarithm of time over the base's time; the t interval of the mean"
        " of these, at 95 and 99.7 %. Without blocks, Welch's t on the logarithms.",
        "Student, The probable error of a mean, Biometrika 6 (1908). Welch, The generalization of"
        " 'Student's' problem, Biometrika 34 (1947).",
    ),
    (
        "Equal (TOST)",
        "Two one-sided t tests at 5 %: the ratio lies within the margin. Not finding a difference"
        " is not equality.",
        "Schuirmann, J. Pharmacokinetics and Biopharmaceutics 15 (1987).",
    ),
    (
        "Slower, faster",
        "The two-sided t test, its p adjusted by Holm over all comparisons of the figure.",
        "Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of"
        " Statistics 6 (1979).",
    ),
    (
        "Dunnett",
        "All environments against the base at once, on logarithms with one spread for all: beside"
        " Holm where a design has no blocks.",
        "Dunnett, A multiple comparison procedure for comparing several treatments with a control,"
        " JASA 50 (1955).",
    ),
    (
        "A/A",
        "The base measured twice under two names. If these differ, nothing of the figure is"
        " trusted. Its p values are adjusted by Holm over the cells of the figure.",
        "Kohavi, Longbotham, Sommerfield, Henne, Data Mining and Knowledge Discovery 18 (2009).",
    ),
    (
        "Effects of factors",
        "Of fractions: the contrast of the cells at a factor's two levels, by ordinary least"
        " squares of the logarithms with a mean for each cell and each block, so that the error is"
        " that of replicates. Whether factors act together is an F test. Without replicates the"
        " error is Lenth's.",
        "Box, Hunter, Hunter, Statistics for Experimenters (2005). Plackett and Burman, Biometrika"
        " 33 (1946). Lenth, Quick and easy analysis of unreplicated factorials, Technometrics 31"
        " (1989).",
    ),
    (
        "Hodges-Lehmann, Wilcoxon, Mann-Whitney",
        "Median of the means of all pairs, with the interval that the rank test inverts to.",
        "Hodges and Lehmann, Annals of Mathematical Statistics 34 (1963). Wilcoxon, Biometrics"
        " Bulletin 1 (1945). Mann and Whitney, Annals of Mathematical Statistics 18 (1947)."
        " Hollander, Wolfe, Chicken, Nonparametric Statistical Methods (2014).",
    ),
    (
        "Bootstrap",
        "BCa intervals from 10,000 draws of whole blocks, with the design's seed; not below 8"
        " blocks (95 %) and 30 blocks (99.7 %).",
        "Efron, Better bootstrap confidence intervals, JASA 82 (1987).",
    ),
    (
        "Permutation",
        "Environments are exchanged within blocks, or between groups.",
        "Fisher, The Design of Experiments (1935). Phipson and Smyth, Statistical Applications in"
        " Genetics and Molecular Biology 9 (2010).",
    ),
    (
        "Cliff's δ",
        "P(slower) less P(faster) for two single runs: 0 no effect, ±1 no overlap.",
        "Cliff, Dominance statistics, Psychological Bulletin 114 (1993).",
    ),
    (
        "Mixed model",
        "log t ~ environment * ranks + (1 | session/block), by REML; intervals use t with one"
        " degree of freedom less than there are blocks.",
        "Laird and Ware, Random-effects models for longitudinal data, Biometrics 38 (1982).",
    ),
    (
        "Drift and lag-1 correlation",
        "A straight line through the logarithms in run order; the correlation of neighbours, which"
        " is normal with deviation 1/√n where there is none.",
        "Bartlett, J. Royal Statistical Society Supplement 8 (1946).",
    ),
    (
        "Disturbed blocks",
        "A fixed computation is timed before and after each run; the rule that repeats blocks"
        " looks at it alone, and never at a result. Both analyses are shown.",
        "The rule stands in the design, before anything is measured.",
    ),
    (
        "As in the papers",
        "Means with 3 s/√n (which covers 98.5 % at n = 10, not 99.7 %); Eq. 1 of the udocker paper"
        " after outliers beyond 1.5 interquartile ranges are masked (an assumption: the paper"
        " states no rule), which is the spread of a ratio of two single runs, so that of the means"
        " stands beside it; best of three, which has no uncertainty.",
        "Gomes et al., Enabling rootless Linux containers in multi-user environments: the udocker"
        " tool, Computer Physics Communications 232 (2018). Tukey, Exploratory Data Analysis"
        " (1977).",
    ),
)
