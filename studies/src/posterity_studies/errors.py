"""What can go wrong in a study, by name. An error names the place, what was found, and the remedy."""

from __future__ import annotations

from posterity.errors import PosterityError


class UnknownStudy(PosterityError):
    """No study goes by that name."""


class NoResults(PosterityError):
    """There is nothing to show yet."""


class DamagedResults(PosterityError):
    """A line of a results file is not a result."""


class ResultsBusy(PosterityError):
    """Another run is writing to the same results file."""


class NotWritten(PosterityError):
    """A result could not be put on disk; the results file is as it was before."""


class WorkerDied(PosterityError):
    """A worker process ended without an answer, most often for want of memory."""


class NoEngine(PosterityError):
    """What spreads cells over a cluster is not installed, or does not answer."""


class BadPicture(PosterityError):
    """A picture of a data set cannot be decoded."""


class BadFeatures(PosterityError):
    """Kept features of a network are not what their name says."""
