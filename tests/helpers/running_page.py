"""An app that is served at a port of this machine, until it is stopped."""

import socket
import threading

from helpers.waiting import SECONDS, wait_until
from preferl.annotate.serve import Server, configured


class RunningPage:
    """The server of an app, in a thread."""

    def __init__(self, app, port=0, config=None):
        self.listening = socket.create_server(("127.0.0.1", port))
        self.port = self.listening.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self._server = Server(config or configured(app, log_level="error"), app)
        sockets = {"sockets": [self.listening]}
        self._thread = threading.Thread(target=self._server.run, kwargs=sockets, daemon=True)
        self._thread.start()
        wait_until(lambda: self._server.started, "the server did not start")

    def stop(self):
        self._server.stop()
        self._thread.join(SECONDS)
        self.listening.close()
        assert not self._thread.is_alive(), "the server did not stop"
