"""The bounded scales that priors live on."""

PRIOR_MIN, PRIOR_MAX = 0.7, 1.3
"""No prior multiplies a score by less or more."""
PRIOR_SPAN = PRIOR_MAX - PRIOR_MIN


def clamp01(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def clamp_prior(value: float) -> float:
    return min(max(value, PRIOR_MIN), PRIOR_MAX)


def prior_of(share: float) -> float:
    """0..1 spread over the range of a prior; one half is neutral."""
    # 0.6 is spelt out: 1.3 - 0.7 is a hair off in binary, and the published vectors use 0.6.
    return clamp_prior(PRIOR_MIN + 0.6 * share)


def weighted(prior: float, weight: float) -> float:
    """A prior whose distance from neutral is scaled by a weight in 0..1."""
    return 1.0 + weight * (prior - 1.0)
