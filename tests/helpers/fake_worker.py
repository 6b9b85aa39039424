"""A stand-in for the training process: same lines in and out, no training. The argument says what happens."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from core.training import events


def tell(event):
    sys.stdout.write(events.to_line(event) + "\n")
    sys.stdout.flush()


def main(mode):
    asked = json.loads(sys.stdin.readline())
    if mode == "kill early":
        os.kill(os.getpid(), signal.SIGKILL)
    folder = Path(asked["config"]["out"])
    folder.mkdir(parents=True, exist_ok=True)
    stop, go = threading.Event(), threading.Event()
    go.set()
    threading.Thread(target=listen, args=(stop, go), daemon=True).start()
    steps = 20_000 if mode == "burst" else 40
    classes = ("healthy", "rust")
    tell(events.RunStarted(str(folder), "cnn", "cpu", classes, 40, 10, 10, 2, steps // 2, 0, 1 << 20, ("tiled",)))
    tell(events.CheckpointSaved(0, str(folder / "last.safetensors"), False))
    sys.stdout.write("a library says hello\n")
    for step in range(1, steps + 1):
        if mode == "fail" and step == 5:
            tell(events.RunFailed("There is no room on the disk.", "Traceback", 1))
            sys.exit(1)
        if mode == "kill" and step == 5:
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        while not go.wait(0.01) and not stop.is_set():
            pass
        if stop.is_set():
            tell(events.RunFinished("stopped", step, 0, 0.5, None, "", "", 1.0))
            return
        tell(events.StepDone(step, step * 2 // (steps + 1), 1 / step, 1 - 1 / step, 0.01, 10, 0.01, 0.0))
        if mode != "burst":
            time.sleep(0.01)
    tell(events.RunFinished("completed", steps, 1, 0.8, 0.75, str(folder / "best.safetensors"), "", 2.0))


def listen(stop, go):
    for line in sys.stdin:
        {"pause": go.clear, "resume": go.set, "stop": stop.set}[line.strip()]()
    stop.set()


if __name__ == "__main__":
    main(sys.argv[1])
