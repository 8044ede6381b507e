# SPDX-License-Identifier: Apache-2.0
"""The real `tinker` client in a loop of GRPO on sorting digits (tinker_loop.py) against
plexrld by TCP, which is restarted in the middle.
"""
import os
import pathlib
import signal
import subprocess
import sys
import time
import venv

from service import CONFIG, Service, free_port

VERSIONS = ("0.25.0", "0.38.0")
STEPS = 30


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
    _, token = service.open_job(job, "lora", 8, env="tinker")
    words = [environment(service.build, version), pathlib.Path(__file__).with_name("tinker_loop.py"),
             f"http://{service.http_address}", str(STEPS)]
    variables = {**os.environ, "TINKER_API_KEY": "tml-" + token, "TINKER_TELEMETRY": "0"}
    restarts = 0
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


def main():
    service = Restarted(pathlib.Path(sys.argv[1]), CONFIG, http_address=f"127.0.0.1:{free_port()}")
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
