"""What every test shares: property tests without a deadline of their own, for these machines are noisy."""

from hypothesis import settings

settings.register_profile("memoryd", deadline=None)
settings.load_profile("memoryd")
