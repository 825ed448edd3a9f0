"""A task with its data, and a stream of tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from torch import Tensor

from posterity.brief import brief
from posterity.checks import check_finite, check_groups
from posterity.curvature import Categorical, Likelihood
from posterity.data import Data
from posterity.data.batches import check_data, is_pair
from posterity.errors import BadTargets, PosterityError, RepeatedTask


@dataclass(frozen=True, eq=False)
class Task:
    """One task: data to learn from, data to watch, data to be judged by, and how many outputs its head has.

    Validation and test data are for learners that need them: `Task("apple", train, classes=5)` is a task.
    """

    __repr__ = brief

    name: str
    train: Data
    validation: Data | None = None
    test: Data | None = None
    classes: int = 0
    likelihood: Likelihood = field(default_factory=Categorical)
    groups: Tensor | None = None
    """Which training examples belong together (windows of one recording): they are left out together."""

    def check(self) -> None:
        """Refuse what can be seen to be wrong before anything is learned."""
        if self.classes < 1:
            raise BadTargets(f'task "{self.name}" has {self.classes} classes: a head has at least one output.')
        for part, data in (("training", self.train), ("validation", self.validation), ("test", self.test)):
            if data is None:
                continue
            try:
                check_data(data)
                if is_pair(data):
                    # Here for every learner: one that keeps what earlier columns make of the inputs never sees them again.
                    check_finite(data[0])
                    check_finite(data[1], "the targets")
            except PosterityError as error:
                raise type(error)(f'the {part} data of task "{self.name}": {error}') from error
            if isinstance(self.likelihood, Categorical) and is_pair(data):
                self._labels(data[1], part)
        if is_pair(self.train):
            check_groups(self.groups, len(self.train[1]))

    def _labels(self, labels: Tensor, part: str) -> None:
        if labels.is_floating_point() or labels.ndim != 1:
            return  # the likelihood says what is wrong with these
        least, most = int(labels.min()), int(labels.max())
        if least < 0 or most >= self.classes:
            raise BadTargets(
                f'the {part} data of task "{self.name}" has labels from {least} to {most} and its head {self.classes} '
                f"outputs: labels must lie in 0..{self.classes - 1}, or classes must be {most + 1}."
            )


@dataclass(frozen=True, eq=False)
class Stream:
    """Tasks in the order in which they come: a plain iterable with a name."""

    name: str
    tasks: tuple[Task, ...]

    def __init__(self, name: str, tasks: Iterable[Task]) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "tasks", tuple(tasks))
        names = [task.name for task in self.tasks]
        if twice := sorted({n for n in names if names.count(n) > 1}):
            raise RepeatedTask(f'the stream "{name}" has tasks of one name more than once: {twice}. Rename them.')

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int) -> Task:
        return self.tasks[index]
