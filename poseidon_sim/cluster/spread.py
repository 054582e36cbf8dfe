"""How much slower than the mean the slowest of many equal GPUs is: all that wait for one another run at its pace.

GPUs of one kind differ in silicon, cooling and the clock that power management leaves them. Source: Sinha et al., Not All GPUs Are
Created Equal, SC'22 (arXiv 2208.11035): performance varies by 8 % among 90 % of the GPUs of five clusters (mean over clusters and
programs; V100, RTX 5000 and MI60), counted from whisker to whisker of a box plot, which is 5.4 standard deviations of a normal law.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

#: standard deviation of the speed of equal GPUs as a share of the mean: 8 % / 5.4 of the source above; fitted on none of our rows
CATALOG_SPREAD = 0.015


@lru_cache(maxsize=256)
def expected_slowest(number: int) -> float:
    """Return the mean of the largest of so many standard normal draws, in standard deviations.

    >>> [round(expected_slowest(n), 4) for n in (1, 2, 8, 1024)]
    [0.0, 0.5642, 1.4236, 3.2482]
    """
    z = np.linspace(-9.0, 9.0, 1801)
    below = np.array([0.5 * math.erfc(-x / math.sqrt(2.0)) for x in z.tolist()])
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    return float((z * number * density * below ** (number - 1)).sum() * (z[1] - z[0])) if number > 1 else 0.0
