"""One hypothesis profile for all tests: the same examples on every run, few enough to stay quick."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "deepsets",
    derandomize=True,
    max_examples=25,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("deepsets")
