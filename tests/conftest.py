"""What holds for all tests."""

from hypothesis import settings

settings.register_profile("feddst", deadline=None)  # how long an example takes depends on the machine
settings.load_profile("feddst")
