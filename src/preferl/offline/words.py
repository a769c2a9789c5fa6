"""Arms and policies in words."""

from typing import Final

from preferl.offline.agents import CLONING
from preferl.offline.arms import LEARNED, NEGATED, RANDOM, TRUE, ZERO

MEANING: Final = {
    LEARNED: "learned reward",
    TRUE: "true reward",
    ZERO: "no reward",
    RANDOM: "random reward",
    NEGATED: "negated reward",
    CLONING: "cloning the data",
}
"""Arms in words."""
