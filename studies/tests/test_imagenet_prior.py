"""The prior of ImageNet as a file: made once, gone on with after a stop, read elsewhere."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import posterity as pt
from posterity.curvature import partial
from posterity_studies.shared import imagenet_prior
from posterity_studies.shared.imagenet import POPULATION


@pytest.fixture
def small(monkeypatch):
    """A small network and a few pictures in the place of ResNet-50 and ImageNet."""

    def network():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
        ).eval()

    def decoded(index, size):
        return torch.rand(len(index), 3, size, size, generator=torch.Generator().manual_seed(1)), []

    monkeypatch.setattr(imagenet_prior, "imagenet_resnet50", network)
    monkeypatch.setattr(imagenet_prior, "imagenet_samples", lambda: SimpleNamespace(decoded=decoded))


@pytest.mark.parametrize("estimator", ["kfac", "kfoc"])
def test_the_prior_is_a_file_with_its_card_that_another_process_reads(small, estimator, tmp_path):
    path = tmp_path / "prior.safetensors"
    made = imagenet_prior.learn(path, 6, 8, estimator, batch_size=2)
    code = f"import posterity as pt; p = pt.load({str(path)!r}); print(p.card.text, *p.blocks, sep='|')"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert said == "ResNet-50 (v1) on ImageNet; curvature of 6 pictures, one a class, at 8 px.|0|4"
    assert not list(tmp_path.glob("*.partial*"))
    assert list(made.blocks) == ["0", "4"]


def test_curvature_stands_for_all_that_the_network_was_trained_on(small, tmp_path):
    path = tmp_path / "prior.safetensors"
    found = imagenet_prior.learn(path, 4, 8, "kfac", batch_size=2)
    torch.manual_seed(0)
    curvature = pt.estimate(
        imagenet_prior.imagenet_resnet50(),
        (
            imagenet_prior.normalised(torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))),
            torch.zeros(4).long(),
        ),
        pt.KFAC(),
        batch_size=2,
        generator=torch.Generator().manual_seed(0),
        progress=False,
    )
    expected = curvature["4"].dense() * POPULATION / 4 + torch.eye(15)
    torch.testing.assert_close(found.precision["4"].dense().double(), expected.double(), rtol=1e-4, atol=1e-6)


def test_a_stopped_run_goes_on(small, monkeypatch, tmp_path):
    monkeypatch.setattr(partial, "SECONDS", 0.0)
    monkeypatch.setattr(partial, "RATIO", 0)
    path = tmp_path / "prior.safetensors"
    whole = imagenet_prior.learn(tmp_path / "whole.safetensors", 6, 8, "kfac", batch_size=2)
    kept = partial.ResumeFile.keep

    def stop(self, state):
        kept(self, state)
        raise KeyboardInterrupt

    monkeypatch.setattr(partial.ResumeFile, "keep", stop)
    with pytest.raises(KeyboardInterrupt):
        imagenet_prior.learn(path, 6, 8, "kfac", batch_size=2)
    assert path.with_suffix(".partial").exists()
    monkeypatch.setattr(partial.ResumeFile, "keep", kept)
    found = imagenet_prior.learn(path, 6, 8, "kfac", batch_size=2)
    for block in whole.blocks:
        assert torch.equal(found.precision[block].dense(), whole.precision[block].dense())
