"""All errors. A message says where, what was found, and what to do about it."""

from typing import Any

from posterity.deprecated import renamed


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
    """The exact result has no structure we can hold; an approximation must be asked for."""


class TooLarge(PosterityError):
    """The exact computation would need a dense matrix beyond the stated limit."""


class DidNotConverge(PosterityError):
    """An iteration ended before it reached what it looks for."""


class InconsistentPosterior(PosterityError):
    """A posterior is wider at a training example than one that has seen the example can be."""


# --- blocks ----------------------------------------------------------------------------------------


class UnsupportedLayer(PosterityError):
    """A layer has parameters and no known way to become a matrix."""


class NoBlocks(PosterityError):
    """A selection matched nothing, or the network has no trainable layer."""


class UnreachedBlock(PosterityError):
    """A block's layer was never called while the network ran."""


class ChangedInput(PosterityError):
    """A layer's input was overwritten before its gradient came back."""


class BlockMismatch(PosterityError):
    """A matrix does not fit the block it is meant for."""


class FrozenMismatch(PosterityError):
    """What a network computes with beside its blocks is not what a Gaussian was made with."""


class BatchLost(PosterityError):
    """A layer's input no longer shows which example is which."""


# --- checks ----------------------------------------------------------------------------------------


class WrongChoice(PosterityError, TypeError):
    """A string or a class was given where a value is meant."""


class UnsupportedNetwork(PosterityError, TypeError):
    """The network is wrapped, quantised, without parameters, or ends in a softmax."""


class NotTrained(PosterityError, ValueError):
    """A network whose weights no data has touched stands where a trained one is meant."""


class NotInstalled(PosterityError, ImportError):
    """An optional package is needed and is not installed."""


# --- curvature -------------------------------------------------------------------------------------


class NoData(PosterityError):
    """There was nothing to learn from."""


class BadData(PosterityError):
    """A batch has a form that cannot be read."""


class BadTargets(PosterityError):
    """Targets and outputs do not fit the likelihood, or each other."""


# --- laplace ---------------------------------------------------------------------------------------


class BadCheckpoint(PosterityError):
    """A checkpoint does not belong to this training, or is damaged."""


class NoDataSet(PosterityError):
    """A data set is not where it should be, or is not what it should be."""


class OversizedData(NoDataSet):
    """A data file declares more than reading it may take; refused before memory is taken."""


# --- pacbayes --------------------------------------------------------------------------------------


class NoCertificate(PosterityError):
    """A certificate was asked for that would not hold; the subclass says why."""


class Overlap(NoCertificate):
    """The prior has seen examples that are to certify it."""


class UnknownPast(NoCertificate):
    """A prior that was learned from data has no record of which."""


class UnfrozenState(NoCertificate):
    """The network computes with something that has no prior and may depend on the data."""


class MixedExamples(NoCertificate):
    """The network's output for one example depends on others."""


class HiddenUse(NoCertificate):
    """A weight is used in another way than by its own layer's call, where it would not be drawn."""


class UndeclaredChoice(NoCertificate):
    """A prior was chosen by the data that is to certify it, and the choices were not counted."""


class InfiniteDivergence(NoCertificate):
    """Posterior and prior are infinitely far apart, or their divergence cannot be computed."""


class UnknownNetwork(PosterityError):
    """A network was named that cannot be found or built."""


class BadAudit(PosterityError):
    """A certificate's record is damaged, or its numbers do not follow from each other."""


# --- progressive -----------------------------------------------------------------------------------


class BadLateral(PosterityError):
    """A lateral connection is asked for where there is no layer that could have one."""


class BadHead(PosterityError):
    """The head named is not a layer that a task could have in a size of its own."""


class LateralMismatch(PosterityError):
    """A layer with lateral connections has another shape, or is called another number of times, in another column."""


class UnknownTask(PosterityError):
    """No task of that name has been learned."""


class RepeatedTask(PosterityError):
    """A task of that name has been learned already, or comes twice in a stream."""


class BadLearnerFile(PosterityError):
    """A folder does not hold a learner, or holds one of another network."""


# --- files -----------------------------------------------------------------------------------------


class NotStorable(PosterityError):
    """A Gaussian holds something that the file format has no place for."""


class NotExportable(PosterityError):
    """Predictions take something that an exported network does not have."""


class MissingFolder(PosterityError, FileNotFoundError):
    """A file was to be written into a folder that does not exist."""


class DiskFull(PosterityError, OSError):
    """There is no room on the disk for a file; none was left behind."""


class NotWritable(PosterityError, OSError):
    """A file cannot be written where it was to go: a read-only disk, a folder of someone else, no plain file."""


class TooLittleMemory(PosterityError, MemoryError):
    """What is asked for needs more memory than there is; reported before it is taken."""


class BadPriorFile(PosterityError):
    """A file cannot be loaded as a prior; the subclass says why."""


class UnreadableFile(BadPriorFile, OSError):
    """The file cannot be opened or read at all."""


class MissingFile(UnreadableFile, FileNotFoundError):
    """There is no file of that name."""


class OversizedFile(BadPriorFile):
    """The file, or its header, is larger than what was allowed."""


class NotAPrior(BadPriorFile):
    """A file of another kind: no safetensors file, or one that posterity did not write."""


class NotAFit(NotAPrior):
    """A prior, or an estimator of another kind, where a fit is needed."""


class OtherNetwork(BadPriorFile):
    """A fit for another network than the one given."""


class DamagedFile(BadPriorFile):
    """A prior whose bytes are no longer, or never were, what its header says."""


class FutureVersion(BadPriorFile):
    """A prior or fit in a format that this version of posterity does not know yet."""


class OldFormat(BadPriorFile):
    """A prior or fit in a format that only unreleased versions wrote."""


# --- other libraries -------------------------------------------------------------------------------


class NotHeldOut(PosterityError, ValueError):
    """A coverage was asked for where no examples were held out to promise it by."""


class NotConvertible(PosterityError):
    """A posterior of another library has a form that cannot be taken over."""


# --- warnings --------------------------------------------------------------------------------------


class Memorisation(UserWarning):
    """A network fits its training data so closely that the data does not show how sure to be of other inputs."""


class DependentExamples(UserWarning):
    """The order of the data betrays that its examples belong together: a certificate would need `groups=`."""


def __getattr__(name: str) -> Any:
    return renamed("errors", name)
