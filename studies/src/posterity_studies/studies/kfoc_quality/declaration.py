"""What is claimed, and which cells test it."""

from __future__ import annotations

from posterity_studies.engine.declaration import Preset, Study, grid
from posterity_studies.studies.kfoc_quality.cells import cell
from posterity_studies.studies.kfoc_quality.reading import verdict
from posterity_studies.studies.kfoc_quality.showing import draw, tables

STUDY = Study(
    id="kfoc-quality",
    claim="K-FOC is closer to the Fisher information than KFAC, also when its batches are joined greedily.",
    grid={
        Preset.smoke: grid(batch=[32, 256], examples=[256], seed=[0]),
        Preset.cpu: grid(batch=[8, 32, 128, 512, 2048], examples=[1600], seed=range(3)),
        Preset.paper: grid(batch=[1, 4, 16, 64, 256, 2048], examples=[1600], seed=range(5)),
    },
    cell=cell,
    tables=tables,
    draw=draw,
    verdict=verdict,
    paper="K-FOC against KFAC (method section)",
    data="scikit-learn's digits (1,600), a network of 2,600 parameters",
    notes=(
        "Labels are exact (all classes by their probability), so nothing here is noise of sampled labels; intervals are "
        "95 % over networks trained on different splits of scikit-learn's digits.",
        "A batch of 2048 holds all data: there K-FOC is the best that one pair can do. Smaller batches are joined by "
        "`nearest`, pair after pair; the difference is what joining greedily costs.",
        "KFAC does not depend on the batch size. EKFAC keeps KFAC's eigenvectors and measures their eigenvalues.",
    ),
)
