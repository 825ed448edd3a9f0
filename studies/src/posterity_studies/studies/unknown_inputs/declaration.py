"""What is claimed, and which cells test it."""

from __future__ import annotations

from posterity_studies.engine.declaration import Preset, Study, grid
from posterity_studies.shared.known_inputs import SETTINGS
from posterity_studies.shared.known_inputs.settings import NEW, STEPS
from posterity_studies.studies.unknown_inputs.cells import cell
from posterity_studies.studies.unknown_inputs.reading import verdict
from posterity_studies.studies.unknown_inputs.showing import draw, tables

STUDY = Study(
    id="unknown-inputs",
    claim="One score finds unknown inputs as well as the best of ten plain ones in hindsight, at the false-alarm rate asked for.",
    data="images, ResNet-50 features, sentence embeddings, windows of sensors and tables: small networks from scratch, after a "
    "source, with examples set aside, and frozen features with a head",
    grid={
        Preset.smoke: grid(setting=["mnist", "notmnist to mnist"], seed=[0], steps=[20], new=[60]),
        Preset.cpu: grid(seed=range(5), setting=list(SETTINGS), steps=[STEPS], new=[NEW]),
        Preset.paper: grid(seed=range(20), setting=list(SETTINGS), steps=[STEPS], new=[NEW]),
    },
    cell=cell,
    tables=tables,
    draw=draw,
    verdict=verdict,
    version=2,
    notes=(
        "A rule joins the p-values of single scores; it has four parts: how they are joined, of which layers, in which form "
        "(distance, or distance relative to that of the neighbours among themselves), and with which of the predictor's own "
        "scores. “Left-one-out rule” is the one of least regret on all other settings: no figure in that column took part in "
        "its own choice. Settings with * were added after the rule was settled.",
        "“Library” is what a user gets, with at most 512 known inputs, as in a file; rivals and rules use all. “Best rival” is "
        "the best of all ten for that very pair, which no one knows beforehand.",
        "Where it falls short: one fixed rule weighs all scores alike everywhere. On reuters entropy and energy tell unknown "
        "topics best, on election they tell next to nothing and distances nearly all, on satimage the last layer's are far "
        "better than the input's. Known classes that are pretended to be unknown say a little of which it will be (study "
        "`pretended-unknowns`: AUROC +.006, of +.026 in hindsight). False alarms are too few where some dozens were left out: "
        "rows that are left out at random have fewer of their own class near them than new inputs have, heads that miss a fold "
        "are less sure of it than the whole head is of new inputs, and a rate from 20 or 50 inputs varies by 3 to 5 points from "
        "seed to seed.",
        "“By training features” ranks scores of training examples under the network that was trained on them: their features "
        "lie closer together than those of new inputs, and known inputs raise false alarms.",
        "“Without features”: the predictor's own scores alone (entropy, energy and the relative variance of features), as when "
        "known inputs are left out of the file; a fit of which no feature is kept lacks the variance too.",
        "Sets: MNIST, Fashion-MNIST, NotMNIST, CIFAR, few-shot photographs (data root); scikit-learn's digits; texts, series and "
        "tables from pinned packages of the Python index (`posterity_studies.shared.labelled.wheels` says which, and how to get "
        "them).",
    ),
)
