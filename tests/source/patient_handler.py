"""A handler of HTTP that outlives its clients' deaths, and says nothing."""

from http.server import BaseHTTPRequestHandler


class PatientHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""

    def setup(self) -> None:
        self.request.settimeout(30)
        super().setup()

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:  # a client that was killed, has left, or does not trust us
            self.close_connection = True
