"""Twenty devices with one file each train a custom module; the exported ledger verifies.

    python examples/devices/run.py [FOLDER]

The script writes twenty files of records and one held-out file, starts a coordinator and twenty
devices on this machine, and verifies the exported ledger. The devices receive the module as an ONNX
graph.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

HERE, DEVICES, PORT = Path(__file__).parent, 20, 8765
TURNOUT = str(Path(sys.executable).with_name("turnout"))


def write_tables(folder: Path) -> None:
    """Write thirty made-up records per device, and the held-out records of another client."""
    random, columns = np.random.default_rng(1), ["device", "w", "x", "y", "z", "ill", "held_out"]
    rows = []
    for device in range(DEVICES + 1):
        values = random.normal(size=(300 if device == DEVICES else 30, 4)).round(3)
        ill = values @ [1.5, -1.0, 0.5, 0.0] + 0.3 * random.normal(size=len(values)) > 0
        held_out = int(device == DEVICES)
        own = [[f"d{device}", *v, int(i), held_out] for v, i in zip(values, ill, strict=True)]
        write(folder / f"d{device}.csv", columns, own)
        rows += own
    write(folder / "visits.csv", columns, rows)


def write(path: Path, columns: list[str], rows: list[list[object]]) -> None:
    """Write a table as CSV."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])


def main(folder: Path) -> None:
    """Serve the plan in a folder until all devices have finished."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tables(folder)
    for name in ("plan.toml", "net.py"):
        shutil.copy(HERE / name, folder / name)
    turnout("enrol", str(DEVICES), "--db", "task.sqlite", "--plan", "plan.toml", "--graph",
            "--step-seconds", "3", "--out", "tokens.txt", folder=folder)  # fmt: skip
    served = begun("serve", "plan.toml", "--db", "task.sqlite", "--port", str(PORT),
                   "--wait-for", str(DEVICES), "--exit-when-finished", folder=folder)  # fmt: skip
    tokens = (folder / "tokens.txt").read_text().split()
    devices = [joined(i, token, folder) for i, token in enumerate(tokens)]
    left = [device.wait() for device in devices]
    print(f"{left.count(0)} of {DEVICES} devices took part and left")
    served.wait()
    turnout("ledger", "export", "--db", "task.sqlite", "--out", "ledger.jsonl", folder=folder)
    turnout("ledger", "verify", "ledger.jsonl", folder=folder)


def joined(device: int, token: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start a device, which exits after its last participation."""
    own = ("--data", f"d{device}.csv", "--state", f"d{device}.state")
    return begun("join", f"http://127.0.0.1:{PORT}", "--token", token, *own, folder=folder)


def turnout(*arguments: str, folder: Path) -> None:
    """Run a command of turnout and wait for its end."""
    subprocess.run([TURNOUT, *arguments], cwd=folder, check=True)


def begun(*arguments: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start a command of turnout."""
    return subprocess.Popen([TURNOUT, *arguments], cwd=folder)


if __name__ == "__main__":
    start = time.monotonic()
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/devices"))
    print(f"{time.monotonic() - start:.0f} s")
