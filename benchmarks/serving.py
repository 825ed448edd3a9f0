"""A fit behind HTTP (`examples/service.py`): requests a second and the 99th percentile with 1, 2 and 8 clients, on 127.0.0.1.

    python -m benchmarks.serving

The service is a process of its own with one thread for every connection; clients are threads of this one that ask again as soon
as they are answered. LeNet-5 with random weights and images: the last layer's exact posterior of 500 of them.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

import posterity as pt
from benchmarks.measure import Case, write
from posterity.lenet import lenet5

CLIENTS = (1, 2, 8)
REQUESTS = 3400
"""Of each number of clients: ten thousand together."""
SHAPE = (1, 28, 28)


@dataclass(frozen=True)
class Load:
    """What clients saw of the service."""

    clients: int
    requests: int
    errors: int
    requests_a_second: float
    median_ms: float
    percentile_99_ms: float
    detail: str = "wall clock, both cores shared with the clients"

    @property
    def key(self) -> tuple[str, ...]:
        """What tells this row from others of its file."""
        return "service", str(self.clients)


@contextmanager
def running(folder: Path) -> Iterator[int]:
    """The service in a process of its own; its port."""
    torch.manual_seed(0)
    x, y = torch.randn(500, *SHAPE), torch.randint(10, (500,))
    model = lenet5()
    head = [name for name, _ in model.named_modules() if name][-1]
    pt.posterior(model, (x, y), blocks=[head], progress=False).save(folder / "lenet.fit")
    command = [sys.executable, "examples/service.py", str(folder / "lenet.fit"), "--network", "posterity.lenet:lenet5"]
    command += ["--shape", ",".join(map(str, SHAPE)), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout is not None
            yield int(service.stdout.readline().rpartition(":")[2])
        finally:
            service.terminate()


def load(port: int, clients: int, requests: int) -> Load:
    """Requests of one image each, dealt out among clients that keep their connections."""
    body = json.dumps({"inputs": torch.randn(1, *SHAPE).tolist()})

    def client(count: int) -> tuple[list[float], int]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        times, errors = [], 0
        for _ in range(count):
            began = time.perf_counter()
            try:
                connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                found = json.loads(answer.read())
                errors += answer.status != 200 or abs(sum(found["probabilities"][0]) - 1) > 1e-4
            except (OSError, http.client.HTTPException, ValueError, KeyError):
                errors += 1
                connection.close()
            times.append(1000 * (time.perf_counter() - began))
        connection.close()
        return times, errors

    client(20)
    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        found = list(pool.map(client, [requests // clients] * clients))
    seconds = time.perf_counter() - began
    times = torch.tensor([t for some, _ in found for t in some], dtype=torch.float64)
    middle, late = times.quantile(torch.tensor([0.5, 0.99], dtype=torch.float64)).tolist()
    errors = sum(errors for _, errors in found)
    return Load(clients, len(times), errors, round(len(times) / seconds, 1), round(middle, 2), round(late, 2))


def measure(quick: bool) -> list[Load]:
    """All numbers of clients, against one running service."""
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as port:
        return [load(port, clients, 40 if quick else REQUESTS) for clients in CLIENTS]


def cases(*, quick: bool = False) -> list[Case]:
    """One case: the service is started once."""
    return [Case("serving", lambda: measure(quick))]


if __name__ == "__main__":
    torch.set_num_threads(1)
    write(measure(quick=False), Path("benchmarks/results/serving.jsonl"))
