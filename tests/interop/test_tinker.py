# SPDX-License-Identifier: Apache-2.0
"""The real `tinker` client in a loop of GRPO on sorting digits (tinker_loop.py) against
plexrld, which is restarted in the middle. The client speaks TCP only: what comes to a port of
this test goes to plexrld's HTTP socket.
"""
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import venv

from service import CONFIG, Service

VERSIONS = ("0.25.0",)
STEPS = 30


class Bridge:
    """Connections to a port of 127.0.0.1 become connections to a unix socket."""

    def __init__(self, path):
        self.path = path
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client):
        service = socket.socket(socket.AF_UNIX)
        with client, service:
            try:
                service.connect(self.path)
            except OSError:
                return
            back = threading.Thread(target=self._copy, args=(service, client), daemon=True)
            back.start()
            self._copy(client, service)
            back.join()

    @staticmethod
    def _copy(source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()


def environment(build, version):
    """The client's own environment: its dependencies are not those of the other tests."""
    place = build / f"interop-tinker-{version}"
    python = place / "bin" / "python"
    if not (place / "installed").exists():
        venv.create(place, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"tinker=={version}"],
                       check=True)
        (place / "installed").touch()
    return python


class Restarted(Service):
    def restart(self):
        """As an upgrade does it: the engine stays."""
        self.daemon.send_signal(signal.SIGTERM)
        self.daemon.wait(60)
        self.daemon = subprocess.Popen([self.build / "plexrld", "--config", self.directory / "plexrl.yaml",
                                        "--node", "interop1"], stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 60
        while not self._answers(self.directory / "run" / "plexrld.sock"):
            assert self.daemon.poll() is None and time.monotonic() < deadline, "plexrld did not come back"
            time.sleep(0.02)


def drive(service, version, job):
    plexrl_socket, token = service.open_job(job, "lora", 8)
    bridge = Bridge(str(pathlib.Path(plexrl_socket).with_name("http.sock")))
    words = [environment(service.build, version), pathlib.Path(__file__).with_name("tinker_loop.py"),
             f"http://127.0.0.1:{bridge.port}", str(STEPS)]
    variables = {**os.environ, "TINKER_API_KEY": "tml-" + token, "TINKER_TELEMETRY": "0"}
    restarts = 0
    try:
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables) as client:
            for line in client.stdout:
                if line.strip() != "restart":
                    print(line, end="")
                    continue
                service.restart()
                restarts += 1
                client.stdin.write("restarted\n")
                client.stdin.flush()
        assert client.returncode == 0, f"tinker {version}: exit status {client.returncode}"
        assert restarts == 1, restarts
    finally:
        bridge.close()


def main():
    service = Restarted(pathlib.Path(sys.argv[1]), CONFIG)
    try:
        for job, version in enumerate(VERSIONS, 1):
            drive(service, version, job)
    except BaseException:
        print((service.directory / "log").read_text()[-4000:], file=sys.stderr)
        raise
    finally:
        service.stop()


if __name__ == "__main__":
    main()
