"""What is claimed, and which cells test it."""

from __future__ import annotations

from posterity_studies.engine.declaration import Preset, Study, grid
from posterity_studies.shared.known_inputs.settings import STEPS
from posterity_studies.shared.labelled.sets import MADE_UP
from posterity_studies.studies.pretended_unknowns.cells import cell
from posterity_studies.studies.pretended_unknowns.methods import SETS
from posterity_studies.studies.pretended_unknowns.reading import verdict
from posterity_studies.studies.pretended_unknowns.showing import draw, tables

REAL = [name for name in SETS if name != MADE_UP]

STUDY = Study(
    id="pretended-unknowns",
    claim="Known classes that are pretended to be unknown tell how much each score of unknown inputs should count.",
    data="texts, photographs and tables: frozen features with a head, small networks after a source and from scratch; none of "
    "the sets that the study `unknown-inputs` reports",
    grid={
        Preset.smoke: grid(set=[MADE_UP], seed=[0], steps=[20], new=[60]),
        Preset.cpu: grid(seed=range(5), set=REAL, steps=[STEPS], new=[500]),
        Preset.paper: grid(seed=range(20), set=REAL, steps=[STEPS], new=[500]),
    },
    cell=cell,
    tables=tables,
    draw=draw,
    verdict=verdict,
    notes=(
        "A fifth of the classes at a time is taken out of the known inputs and out of the outputs. Left-out examples of these "
        "classes are then scored as unknown beside left-out examples of the others. A score's weight is the library's times "
        "exp(4 × its AUROC), or exp(8 ×). “In hindsight” has the AUROC for the unknown inputs themselves in its place (8 ×), "
        "which no judge can know.",
        "This is fair where features are frozen. A network that was trained on a class tells it from the others whatever the "
        "score; after a source that has the same classes, their source inputs count as known and no distance can tell them.",
        "“Class distance” adds one score, counted twice like the predictor's own: the distance of the last layer's features to "
        "the nearest class mean, by their covariance within classes. It was tried after pretended unknowns had gained little.",
        "Constants were looked at on these very sets: no row is an estimate for others. The library uses neither: they gain "
        "little beside hindsight, and weights by pretended classes lose on inputs of another kind (emoji / talk).",
        "False alarms: a row that is left out at random has fewer of its own class near it than a new input has, and looks more "
        "unusual. Left out one of every class at a time, as by `pt.head`, all classes lose alike. Rules are compared with rows "
        "left out at random, as `pt.adapt` does.",
    ),
)
