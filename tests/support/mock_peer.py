#!/usr/bin/env python3
"""In place of Python: a worker of peers that have no library and behave as their names here say. Each order is added to
the file `KGEN_MOCK_ORDERS`."""

import json
import os
import signal
import sys
import time

BEHAVIOUR = {
    "eager": "good", "triton": "good", "sdpa-flash": "dies", "sdpa-cudnn": "refuses", "sdpa-efficient": "old",
    "sdpa-math": "garbage", "compile": "absent", "flex": "wrong", "fa2": "hangs", "fa3": "timeless", "fa4": "stray",
}

envelope = json.loads(sys.stdin.readline())
token, request = envelope["token"], envelope["request"]
name, behaviour = request["peer"], BEHAVIOUR.get(request["peer"], "crashes")


def say(event, **facts):
    print(token, json.dumps({"event": event, **facts}), flush=True)


def note(order):
    if path := os.environ.get("KGEN_MOCK_ORDERS"):
        with open(path, "a") as file:
            file.write(f"{name} {order}\n")


if behaviour == "crashes":
    sys.exit("no such library")
if behaviour == "absent":
    say("absent", message="it is not installed")
    sys.exit()
print("a library may print")
say("hello", protocol=2 if behaviour == "old" else request["version"], library=f"mock {name}")
card = {"sm_clock_mhz": 1111, "temperature_c": 40, "power_w": 300.5}
rounds = 0
for line in sys.stdin:
    order = json.loads(line)
    note(order)
    if isinstance(order, dict):
        point, rounds = request["points"][order["prepare"]], 0
        if behaviour == "refuses":
            say("failed", status="refused", message=f"it has no head dim {point['head_dim']}")
        elif behaviour == "stray":
            say("finished", relative_error=0, graph=False, cold_l2=False)
        else:
            say("ready", launches=3)
    elif order == "round":
        rounds += 1
        if behaviour == "dies" and rounds == 2:
            print("out of luck", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if behaviour == "garbage":
            print("stray", flush=True)
            print(token, "{", flush=True)
        if behaviour == "hangs":
            time.sleep(60)
        # Far slower than the kernel.
        say("round", microseconds=[0.0 if behaviour == "timeless" else 1e6 + rounds], card=card)
    elif behaviour == "wrong":
        say("failed", status="wrong", message="after timing: O is wrong")
    else:
        say("finished", relative_error=0.001, graph=False, cold_l2=False, memory_bytes=4096)
