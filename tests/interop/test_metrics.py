# SPDX-License-Identifier: Apache-2.0
"""/metrics of a plexrld that has trained and sampled, by `promtool check metrics`: the format, and the rules for names."""
import pathlib
import subprocess
import sys
import tempfile

import httpx2

from plexrl_c import Model
from service import CONFIG, Service

SKIPPED = 77


def promtool(folder):
    """Of Debian's package, which is not installed for one program; None where it cannot be had."""
    fetched = subprocess.run(["apt-get", "download", "prometheus"], cwd=folder, capture_output=True, text=True, timeout=300,
                             check=False)
    packages = list(folder.glob("prometheus_*.deb"))
    if fetched.returncode != 0 or not packages:
        print("  the package prometheus cannot be fetched:", fetched.stderr.strip().splitlines()[-1:])
        return None
    subprocess.run(["dpkg-deb", "-x", packages[0], folder / "root"], check=True)
    return folder / "root" / "usr" / "bin" / "promtool"


def metrics_of(build):
    service = Service(build, CONFIG)
    try:
        plexrl_socket, token = service.open_job(1, "lora", rank=8)
        model = Model(build, plexrl_socket, token, name="metrics")
        model.generate(0, [[1, 2, 3]], 2, 4, 1.0, 5)
        model.forward_backward(0, [{"tokens": [1, 2, 3], "target_tokens": [2, 3, 4], "weights": [1.0, 1.0, 1.0]}])
        model.optim_step(learning_rate=0.01)
        http = str(pathlib.Path(plexrl_socket).with_name("http.sock"))
        with httpx2.Client(transport=httpx2.HTTPTransport(uds=http)) as client:
            return client.get("http://localhost/metrics").text
    finally:
        service.stop()


def main():
    with tempfile.TemporaryDirectory(prefix="plexrl-promtool-") as name:
        program = promtool(pathlib.Path(name))
        if program is None:
            sys.exit(SKIPPED)
        text = metrics_of(pathlib.Path(sys.argv[1]))
        for expected in ("plexrl_engine_up", "plexrl_job_device_seconds_total"):
            assert f"# TYPE {expected} " in text, expected
        checked = subprocess.run([program, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
        said = checked.stdout + checked.stderr
        assert checked.returncode == 0 and not said.strip(), said
        broken = subprocess.run([program, "check", "metrics"], input="# TYPE a b\na 1\n", capture_output=True, text=True,
                                check=False)
        assert broken.returncode != 0, "it takes anything"
    print(f"  {text.count('# TYPE ')} metrics")


if __name__ == "__main__":
    main()
