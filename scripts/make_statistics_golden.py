#!/usr/bin/env python3
"""Writes tests/golden/statistics.json: what SciPy and statsmodels say on made-up scores.

    pip install scipy statsmodels && scripts/make_statistics_golden.py > tests/golden/statistics.json

Every case has a kind, its input, what the reference gives, and the tolerance: 1e-9, except for bootstraps, where the
reference's mean over 40 seeds is given with three Monte-Carlo standard errors.
"""
import json
import sys

import numpy as np
import scipy
import statsmodels
import statsmodels.api as sm
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

SEEDS = 40
CASES = []


def add(kind, name, given, want, tolerance=1e-9):
    CASES.append({"kind": kind, "name": name, "in": given, "want": want, "tolerance": tolerance})


def wilson():
    for hits, n in [(0, 1), (1, 1), (0, 10), (7, 10), (10, 10), (1, 500), (499, 500), (25_000, 50_000)]:
        low, high = proportion_confint(hits, n, method="wilson")
        add("wilson", f"{hits} of {n}", [hits, n], [low, high])


def normal():
    for p in [1e-12, 0.001, 0.025, 0.3, 0.5, 0.8, 0.999]:
        add("normal_quantile", str(p), [p], [stats.norm.ppf(p)])
    for z in [-8.0, -1.96, 0.0, 0.3, 5.0]:
        add("normal_cdf", str(z), [z], [stats.norm.cdf(z)])


def binomial():
    for k, n, p in [(0, 1, 0.5), (3, 10, 0.2), (450, 1000, 0.5), (9, 10_000, 0.001)]:
        add("binomial_cdf", f"{k} {n} {p}", [k, n, p], [stats.binom.cdf(k, n, p)])


def mcnemar_cases():
    for worse, better in [(0, 0), (0, 1), (1, 0), (5, 5), (3, 17), (61, 49), (0, 6), (1000, 900), (2400, 2500)]:
        table = [[50, worse], [better, 50]]
        p = mcnemar(table, exact=True).pvalue if worse + better else 1.0  # statsmodels divides by zero there
        add("mcnemar", f"{worse} worse, {better} better", [worse, better], [min(1.0, p)])


def flips(rng):
    def p(x):
        x = x if len(x) > 1 else [*x, 0.0]  # SciPy wants two; a zero changes no sum
        return stats.permutation_test((np.array(x, float),), np.sum, permutation_type="samples", n_resamples=np.inf).pvalue

    data = {
        "one pair": [0.5],
        "two pairs": [1.0, 1.0],
        "all equal": [0.25] * 10,
        "zeros among them": [0.0, 0.5, 0.0, -0.25, 1.0, 0.0],
        "ties": [1, 1, -1, 1, -1, 1, 1, 1],
        "no difference": [0.0, 0.0, 0.0],
        "graded": [0.5, -0.25, 1, 0.75, 0.1, -0.3, 0.9, 0.2, 0.4, -0.15],
        "tenths whose sums round": [0.1, 0.2, -0.3, 0.1, 0.1, -0.2, 0.3],
        "heavy tail": list(np.round(rng.standard_t(2, 14), 6)),
    }
    for name, x in data.items():
        add("sign_flip", name, x, [1.0 if not np.any(x) else p(x)])


def adjusting(rng):
    lists = {
        "one": [0.03],
        "four": [0.01, 0.04, 0.03, 0.005],
        "ties": [0.02, 0.02, 0.02, 0.5],
        "ones": [1.0, 1.0],
        "zero": [0.0, 0.2, 0.9],
        "twenty": list(np.round(rng.uniform(0, 0.2, 20), 5)),
    }
    for name, p in lists.items():
        add("holm", name, p, list(multipletests(p, method="holm")[1]))
        add("bh", name, p, list(multipletests(p, method="fdr_bh")[1]))


def errors(rng):
    def clustered(values, clusters):
        model = sm.OLS(values, np.ones(len(values)))
        return model.fit(cov_type="cluster", cov_kwds={"groups": clusters}).bse[0]

    values = np.round(rng.uniform(0, 1, 30), 4)
    alone = np.arange(30)
    tens = np.repeat(np.arange(10), 3)
    uneven = np.array([0] * 12 + [1] * 8 + [2] * 5 + [3] * 3 + [4, 5])
    for name, groups in [("alone", alone), ("threes", tens), ("uneven", uneven)]:
        se = clustered(values, groups)
        given = {"values": list(values), "clusters": [f"c{g:02d}" for g in groups]}
        add("stderr", name, given, [se])
        add("mde", name, given, [(stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) * se])
    add("stderr", "sem", {"values": [1.0, 2.0, 3.0, 6.0], "clusters": []}, [stats.sem([1.0, 2.0, 3.0, 6.0])])


def bootstraps(rng):
    def ratio(s, c, axis=-1):
        return np.sum(s, axis=axis) / np.sum(c, axis=axis)

    data = {
        "graded": (np.round(rng.uniform(0, 1, 25), 3), np.ones(25)),
        "skewed": (np.round(np.exp(rng.normal(0, 1, 30)), 3), np.ones(30)),
        "0/1 differences": (rng.choice([-1.0, 0.0, 1.0], 110, p=[0.05, 0.75, 0.2]), np.ones(110)),
        "uneven clusters": (np.array([3.0, 5, 0, 2, 8, 1, 4, 6, 2, 7]), np.array([4.0, 9, 2, 3, 9, 5, 5, 8, 6, 7])),
        "many 0/1": (rng.choice([-1.0, 0.0, 1.0], 2000, p=[0.1, 0.7, 0.2]), np.ones(2000)),
        "many graded": (np.round(rng.beta(0.4, 0.3, 1500), 4), np.ones(1500)),
    }
    for name, (s, c) in data.items():
        limits = []
        for seed in range(SEEDS):
            ci = stats.bootstrap((s, c), ratio, paired=True, n_resamples=10_000, method="BCa", vectorized=True,
                                 batch=1000, rng=np.random.default_rng(seed)).confidence_interval
            limits.append([ci.low, ci.high])
        limits = np.array(limits)
        error = 3 * limits.std(axis=0, ddof=1) * np.sqrt(1 + 1 / SEEDS)
        add("bca", name, {"sums": list(s), "counts": list(c)}, list(limits.mean(axis=0)),
            [max(float(e), 1e-9) for e in error])


def main():
    rng = np.random.default_rng(20261130)
    wilson()
    normal()
    binomial()
    mcnemar_cases()
    flips(rng)
    adjusting(rng)
    errors(rng)
    bootstraps(rng)
    about = {"scipy": scipy.__version__, "statsmodels": statsmodels.__version__, "numpy": np.__version__,
             "made_by": "scripts/make_statistics_golden.py", "n_cases": len(CASES)}
    cases = ",\n".join(json.dumps(c, default=float) for c in CASES)
    sys.stdout.write(f'{{"about": {json.dumps(about)},\n"cases": [\n{cases}\n]}}\n')


main()
