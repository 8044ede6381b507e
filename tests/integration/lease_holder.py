#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lease_holder BUILD MODE [ARGUMENTS]: a job with an engine of its own, on libplexrl's C interface.

  alternate SEED ROUNDS MIB  ROUNDS turns on the device; in each a region of MIB is checked against what
                             the last turn left, computed anew, and given up when asked
  alternate-cuda SEED ROUNDS MIB  the same with a region on CUDA device 0, whose memory the stub of a
                             driver lets the host touch
  refuse                     holds, is cooperative by its word, and never yields
  once                       holds once, says so, and releases
  fault, fault-cuda          a region is touched after the yield: must be a SIGSEGV
  too-large BYTES            a region beyond the grant must be refused
"""
import array
import ctypes as c
import os
import signal
import sys
import time

build, mode, arguments = sys.argv[1], sys.argv[2], sys.argv[3:]
lib = c.CDLL(f"{build}/.libs/libplexrl.so")
for name in ("plexrl_region_address",):
    getattr(lib, name).restype = c.c_void_p
for name in ("plexrl_region_bytes",):
    getattr(lib, name).restype = c.c_uint64


class Error(c.Structure):
    _fields_ = [("code", c.c_int), ("retry_after_ms", c.c_uint32), ("text", c.c_char * 512)]


class LeaseOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("device_bytes", c.c_uint64), ("limit_ms", c.c_int64),
                ("cooperative", c.c_int), ("pids", c.POINTER(c.c_int32)), ("pid_count", c.c_size_t)]


def call(function, *args):
    error = Error()
    if function(*args, c.byref(error)) != 0:
        raise RuntimeError(f"{error.code}: {error.text.decode()}")


def say(text):
    print(text, flush=True)


session, lease = c.c_void_p(), c.c_void_p()
call(lib.plexrl_connect, None, c.byref(session))
options = LeaseOptions(size=c.sizeof(LeaseOptions), cooperative=1)
call(lib.plexrl_lease_acquire, session, c.byref(options), c.byref(lease))
call(lib.plexrl_lease_wait, lease, c.c_int64(60000))
say("held")


def asked():
    yes = c.c_int()
    call(lib.plexrl_lease_should_yield, lease, c.byref(yes), None)
    return yes.value == 1


def region_of(size):
    region = c.c_void_p()
    if mode.endswith("-cuda"):
        call(lib.plexrl_region_create_cuda, lease, c.c_uint64(size), 0, c.byref(region))
    else:
        call(lib.plexrl_region_create, lease, c.c_uint64(size), c.byref(region))
    return region, lib.plexrl_region_address(region)


def give_up():
    call(lib.plexrl_lease_yield, lease)
    call(lib.plexrl_lease_wait, lease, c.c_int64(60000))


def contents(seed, turn, size):
    """Bytes that no other seed or turn has, the same each time."""
    words = array.array("Q", [(seed * 0x9E3779B97F4A7C15 + turn * 0xBF58476D1CE4E5B9 + i * 0x94D049BB133111EB)
                              & 0xFFFFFFFFFFFFFFFF for i in range(4096 // 8)])
    return words.tobytes() * (size // 4096)


def alternate(seed, turns, mib):
    size = mib << 20
    region, address = region_of(size)
    before = bytes(size)
    for turn in range(turns):
        if c.string_at(address, size) != before:
            raise RuntimeError(f"turn {turn}: the contents have changed")
        before = contents(seed, turn, size)
        c.memmove(address, before, size)
        say(f"turn {turn}")
        deadline = time.monotonic() + 60
        while not asked() and turn + 1 < turns:
            if time.monotonic() > deadline:
                raise RuntimeError("was never asked")
            time.sleep(0.01)
        if turn + 1 < turns:
            give_up()
            if lib.plexrl_region_address(region) != address:
                raise RuntimeError("another address")


def fault():
    _, address = region_of(1 << 20)
    c.memset(address, 7, 4096)
    call(lib.plexrl_lease_yield, lease)
    child = os.fork()
    if child == 0:
        c.string_at(address, 1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGSEGV:
        raise RuntimeError(f"touching a suspended region gave {status}")
    call(lib.plexrl_lease_wait, lease, c.c_int64(60000))
    if c.string_at(address, 4096) != bytes([7]) * 4096:
        raise RuntimeError("the contents have changed")


if mode in ("alternate", "alternate-cuda"):
    alternate(*map(int, arguments))
elif mode == "refuse":
    while True:
        time.sleep(1)
elif mode in ("fault", "fault-cuda"):
    fault()
elif mode == "too-large":
    try:
        region_of(int(arguments[0]))
    except RuntimeError as refused:
        say(refused)
        sys.exit(0 if str(refused).startswith("11:") else 1)
    sys.exit(1)
lib.plexrl_lease_release(lease)
lib.plexrl_disconnect(session)
say("done")
