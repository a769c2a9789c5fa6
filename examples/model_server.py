"""A model behind a URL: it prefers the clip whose pictures change more.

python examples/model_server.py [--smoke]
preferl annotate ask motion --url http://localhost:8700/
"""

import argparse
import base64
import io
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import numpy as np
from matplotlib.image import imread

from preferl.store.http_model import HttpModel
from preferl.store.model_annotator import ShownPair


def motion(pictures: list[str]) -> float:
    """How much the pictures of a clip, PNGs in base64, change from one to the next."""
    frames = [imread(io.BytesIO(base64.b64decode(picture))) for picture in pictures]
    return float(np.abs(np.diff(frames, axis=0)).mean())


class Compare(BaseHTTPRequestHandler):
    """Answers pairs of clips."""

    def do_POST(self) -> None:
        pair = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        first, second = map(motion, pair["clips"])
        preference = 0.5 * (1 + np.sign(first - second))
        reply = json.dumps({"preference": preference, "cost": 0.001, "version": "motion-1"})
        self.send_response(200)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply.encode())

    def log_message(self, *_: object) -> None:
        """Print nothing for each request."""


def main(*, smoke: bool) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0 if smoke else 8700), Compare)
    if not smoke:
        server.serve_forever()
    Thread(target=server.serve_forever, daemon=True).start()
    still = np.zeros((8, 64, 64, 3), np.uint8)
    moving = still + (np.arange(8) % 2 * 255).astype(np.uint8)[:, None, None, None]
    steps = np.zeros((2, 8, 1))
    frames = (moving, still)
    shown = ShownPair("Which moves?", "", "", frames, steps, steps, np.ones((2, 8), bool))
    print(HttpModel(f"http://127.0.0.1:{server.server_port}/")(shown))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="ask once, and end")
    main(smoke=parser.parse_args().smoke)
