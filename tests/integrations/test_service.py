"""`examples/service.py`: answers from a saved fit, to many clients at once, and errors that leave it running."""

from __future__ import annotations

import http.client
import json
import runpy
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import nn

import posterity as pt

SERVICE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "service.py"))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    path = tmp_path_factory.mktemp("service") / "one.fit"
    pt.posterior(network(), (x, x[:, :3].argmax(1)), blocks=["2"], progress=False).save(path)
    running = SERVICE["Service"](("127.0.0.1", 0), pt.load(path, network()), (4,))
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    yield running
    running.shutdown()
    running.server_close()
    thread.join()


def ask(service, body: bytes | str | None, path: str = "/predict", headers=None) -> tuple[int, dict]:
    connection = http.client.HTTPConnection("127.0.0.1", service.server_address[1], timeout=60)
    connection.request("GET" if body is None else "POST", path, body, headers or {})
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def test_the_answer_is_the_fits_own(service):
    x = torch.randn(3, 4)
    status, found = ask(service, json.dumps({"inputs": x.tolist()}))
    wanted = service.fit.predict(x)
    assert status == 200
    assert found["probabilities"] == wanted.probs.tolist()
    assert found["unknown"] == wanted.unknown.tolist()


def test_many_clients_at_once_get_their_own_answers(service):
    inputs = [torch.randn(1, 4) for _ in range(40)]
    wanted = [service.fit.predict(x).probs.tolist() for x in inputs]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda x: ask(service, json.dumps({"inputs": x.tolist()})), inputs))
    assert [status for status, _ in found] == [200] * 40
    assert [answer["probabilities"] for _, answer in found] == wanted


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("not json", "not JSON"),
        ("[]", "inputs"),
        ('{"inputs": []}', "between 1"),
        ('{"inputs": [[1, 2]]}', "shape"),
        ('{"inputs": [[1, 2, 3, "four"]]}', "numbers"),
        ('{"inputs": [[1, 2, 3, NaN]]}', "NaN"),
        ('{"inputs": [[1, 2, 3, 4], [1]]}', "one shape"),
    ],
)
def test_a_bad_request_is_refused_with_its_reason_and_the_service_goes_on(service, body, says):
    status, found = ask(service, body)
    assert status == 400
    assert says in found["error"]
    assert ask(service, None, "/health") == (200, {"status": "ok", "predictor": "LastLayer"})


def test_other_paths_and_too_large_bodies_are_refused(service):
    assert ask(service, None, "/other")[0] == 404
    assert ask(service, b"", headers={"Content-Length": str(10**9)})[0] == 413
