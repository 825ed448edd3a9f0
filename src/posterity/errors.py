"""Everything that can go wrong by name. An error tells the place, what was found, and the remedy."""


class PosterityError(Exception):
    """The root of every error this package raises on purpose."""


# --- algebra ---------------------------------------------------------------------------------------


class NotSquare(PosterityError):
    """A factor that must be square is not."""


class NotSymmetric(PosterityError):
    """A matrix is asymmetric beyond what rounding explains."""


class NotFinite(PosterityError):
    """A NaN or an infinity where a number is needed."""


class NotReal(PosterityError):
    """A tensor of integers, booleans or complex numbers where real floating point is needed."""


class NotPositiveDefinite(PosterityError):
    """A Cholesky factor was needed and does not exist."""


class SizeMismatch(PosterityError):
    """Two things that must fit together do not."""


class EmptySum(PosterityError):
    """A sum of no terms has no shape."""


class NotExact(PosterityError):
    """The exact result has no structure we can hold; an approximation must be asked for by name."""


class TooLarge(PosterityError):
    """The exact computation would need a dense matrix beyond the stated limit."""


# --- studies ---------------------------------------------------------------------------------------


class UnknownStudy(PosterityError):
    """No study goes by that name."""


class NoResults(PosterityError):
    """There is nothing to show yet."""


class DamagedResults(PosterityError):
    """A line of a results file is not a result."""


class ResultsBusy(PosterityError):
    """Another run is writing to the same results file."""


class WorkerDied(PosterityError):
    """A worker process ended without an answer, most often for want of memory."""


# --- blocks ----------------------------------------------------------------------------------------


class UnsupportedLayer(PosterityError):
    """A layer has parameters and no known way to become a matrix."""


class NoBlocks(PosterityError):
    """A selection matched nothing, or the network has no trainable layer."""


class UnreachedBlock(PosterityError):
    """A block's layer was never called while the network ran."""


class BlockMismatch(PosterityError):
    """A matrix does not fit the block it is meant for."""


class BatchLost(PosterityError):
    """A layer's input no longer tells which example is which."""


# --- curvature -------------------------------------------------------------------------------------


class NoData(PosterityError):
    """There was nothing to learn from."""


class BadData(PosterityError):
    """A batch has a form that cannot be read."""


class BadTargets(PosterityError):
    """Targets and outputs do not fit the likelihood, or each other."""
