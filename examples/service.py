"""A fit behind HTTP: every request is answered by a thread of its own, from one fit that was saved as a file.

    python examples/service.py letters.fit --network mymodels:build --shape 1,28,28 --port 8000
    curl -d '{"inputs": [[…]]}' http://127.0.0.1:8000/predict

The network's own code is imported by name; the file holds weights and numbers and no code. `/health` says that the service is up.
Every answer is JSON, errors too: 400 for what the client sent, 500 for what went wrong here, and the service goes on.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from torch import Tensor, nn

import posterity as pt
from posterity.errors import PosterityError

MOST_BYTES = 10_000_000
"""Of a request: larger ones are refused before they are read."""
MOST_INPUTS = 256
"""Of a request: one client is not to keep all others waiting."""


class BadRequest(Exception):
    """What the client sent cannot be answered."""


class Service(ThreadingHTTPServer):
    """The fit, and the shape of one input."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], fit: pt.Fit, shape: tuple[int, ...]) -> None:
        super().__init__(address, Handler)
        self.fit, self.shape = fit, shape

    def inputs(self, body: bytes) -> Tensor:
        """The inputs of a request, checked before the network sees them."""
        try:
            given = json.loads(body)
        except ValueError as error:
            raise BadRequest(f"the body is not JSON: {error}") from error
        if not isinstance(given, dict) or not isinstance(given.get("inputs"), list):
            raise BadRequest('the body must be {"inputs": [one list of numbers for each input]}')
        if not 1 <= len(given["inputs"]) <= MOST_INPUTS:
            raise BadRequest(f"{len(given['inputs'])} inputs: give between 1 and {MOST_INPUTS}")
        try:
            x = torch.tensor(given["inputs"], dtype=torch.float32)
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise BadRequest(f"the inputs are not lists of numbers of one shape: {error}") from error
        if x[0].numel() != math.prod(self.shape):
            raise BadRequest(f"an input has shape {tuple(x.shape[1:])} where the network takes {self.shape}")
        if not bool(x.isfinite().all()):
            raise BadRequest("the inputs have NaN or infinite numbers")
        return x.view(-1, *self.shape)

    def answer(self, x: Tensor) -> dict[str, Any]:
        """What the fit says of inputs."""
        found = self.fit.predict(x)
        unknown = None if found.unknown is None else found.unknown.tolist()
        if isinstance(self.fit.likelihood, pt.GaussianNoise):
            return {"mean": found.mean.tolist(), "variance": found.variance.tolist(), "unknown": unknown}
        return {"probabilities": found.probs.tolist(), "classes": list(self.fit.classes), "unknown": unknown}


class Handler(BaseHTTPRequestHandler):
    """One connection, which may ask many times."""

    server: Service
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    timeout = 60

    def do_GET(self) -> None:
        if self.path == "/health":
            self._send(200, {"status": "ok", "predictor": type(self.server.fit.predictor).__name__})
        else:
            self._send(404, {"error": "GET /health or POST /predict"})

    def do_POST(self) -> None:
        try:
            length = int(self.headers.get("Content-Length", ""))
        except ValueError:
            length = -1
        if not 0 <= length <= MOST_BYTES:
            self.close_connection = True  # the body stays unread
            self._send(
                413 if length > MOST_BYTES else 411, {"error": f"send at most {MOST_BYTES} bytes, and say how many"}
            )
            return
        body = self.rfile.read(length)
        if self.path != "/predict":
            self._send(404, {"error": "GET /health or POST /predict"})
            return
        try:
            self._send(200, self.server.answer(self.server.inputs(body)))
        except (BadRequest, PosterityError) as error:
            self._send(400, {"error": str(error)})
        except Exception as error:  # one request never takes the service down
            self.log_error("%s: %s", type(error).__name__, error)
            self._send(500, {"error": "the prediction failed; the service's log says why"})

    def _send(self, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Only errors are logged."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve a saved fit over HTTP.")
    parser.add_argument("fit")
    parser.add_argument("--network", required=True, help="module:function that builds the network")
    parser.add_argument("--shape", required=True, help="of one input: 1,28,28")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    module, _, function = options.network.partition(":")
    network: nn.Module = getattr(importlib.import_module(module), function)()
    # Threads of requests share the cores: each prediction takes one.
    torch.set_num_threads(1)
    shape = tuple(int(side) for side in options.shape.split(","))
    service = Service(("127.0.0.1", options.port), pt.load(options.fit, network), shape)
    print(f"http://127.0.0.1:{service.server_address[1]}", flush=True)
    try:
        service.serve_forever()
    except KeyboardInterrupt:
        service.server_close()


if __name__ == "__main__":
    main()
