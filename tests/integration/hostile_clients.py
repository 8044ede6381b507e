# SPDX-License-Identifier: Apache-2.0
"""hostile_clients.py BUILD DAEMON_PID: clients that a plexrld must outlive, without harm to others.

Uses the socket and token in the environment. Between the attacks an ordinary query is answered soon.
"""
import array
import os
import pathlib
import random
import socket
import struct
import subprocess
import sys
import tempfile
import threading

BUILD, DAEMON = pathlib.Path(sys.argv[1]), int(sys.argv[2])
PATH = os.environ["PLEXRL_SOCKET"]


def connect():
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.settimeout(10)
    link.connect(PATH)
    return link


def closed(link):
    """Reads to the end: True when plexrld closed the connection within the time-out."""
    try:
        while link.recv(65536):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


def resident_mib():
    for line in open(f"/proc/{DAEMON}/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("plexrld is gone")


def descriptors():
    return len(os.listdir(f"/proc/{DAEMON}/fd"))


def healthy():
    subprocess.run([BUILD / "plexrl", "status", "--socket", PATH], check=True, timeout=10,
                   stdout=subprocess.DEVNULL)


def recorded_query():
    """The frames of a real client: a hello and a query of the state, as they are on the wire."""
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/proxy.sock"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        listener.listen(1)
        client = subprocess.Popen([BUILD / "plexrl", "status", "--socket", path], stdout=subprocess.DEVNULL)
        ours, _ = listener.accept()
        theirs = connect()
        sent = bytearray()

        def forward():
            while data := ours.recv(65536):
                sent.extend(data)
                theirs.sendall(data)

        thread = threading.Thread(target=forward)
        thread.start()
        while client.poll() is None:
            theirs.settimeout(0.2)
            try:
                if data := theirs.recv(65536):
                    ours.sendall(data)
            except TimeoutError:
                pass
        thread.join()
        frames = []
        while sent:
            size = 24 + struct.unpack_from("<I", sent, 8)[0]
            frames.append(bytes(sent[:size]))
            del sent[:size]
        return frames


def garbage():
    random.seed(1)
    for _ in range(50):
        link = connect()
        link.sendall(random.randbytes(random.randrange(24, 4096)))
        assert closed(link)


def damaged_frames(frames):
    random.seed(2)
    for _ in range(100):
        frame = bytearray(random.choice(frames))
        for _ in range(3):
            frame[random.randrange(24, len(frame))] ^= 1 << random.randrange(8)
        link = connect()
        link.sendall(frame)
        link.close()


def half_frames(frames):
    links = [connect() for _ in range(50)]
    for link in links:
        link.sendall(frames[0][:random.randrange(1, len(frames[0]))])
    healthy()
    for link in links:
        link.close()


def many_connections():
    links = []
    try:
        for _ in range(1100):
            links.append(connect())
    except OSError:
        pass
    for link in links:
        link.close()


def descriptors_where_none_belong(frames):
    before = descriptors()
    file = os.open("/dev/null", os.O_RDONLY)
    for count in (1, 2, 200):
        link = connect()
        rights = array.array("i", [file] * count).tobytes()
        link.sendmsg([frames[-1]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        link.settimeout(1)
        closed(link)
        link.close()
    healthy()
    assert descriptors() <= before + 4, (before, descriptors())


def never_reads(frames):
    """Sends queries and reads no answer: plexrld stops to serve it long before memory is short."""
    before = resident_mib()
    links = [connect() for _ in range(4)]
    for link in links:
        link.settimeout(1)
        try:
            for _ in range(100000):
                link.sendall(frames[-1])
        except OSError:
            pass
    healthy()
    grown = resident_mib() - before
    for link in links:
        link.close()
    assert grown < 64, grown


def main():
    frames = recorded_query()
    for attack, args in ((garbage, ()), (damaged_frames, (frames,)), (half_frames, (frames,)),
                         (many_connections, ()), (descriptors_where_none_belong, (frames,)),
                         (never_reads, (frames,))):
        attack(*args)
        healthy()
        print("survived:", attack.__name__)


main()
