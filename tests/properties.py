"""How many examples property tests try: all in the long tier, few in the fast tier."""

from hypothesis import settings

FAST_PROFILE = "fast"
FAST_EXAMPLES = 25


def examples(most):
    """Return `most`, or fewer under the profile of the fast tier."""
    return min(most, FAST_EXAMPLES) if settings.get_current_profile_name() == FAST_PROFILE else most
