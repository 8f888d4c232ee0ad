// Ends the process, as kill -9 does, at the n-th call that changes a file: half way through a
// write, and right after a file took its place. (Syncing makes no difference to a kill.)
// And lets nobody wait for long: a moment comes within a tenth of a second.

import fs from "node:fs";

const wait = globalThis.setTimeout;
globalThis.setTimeout = (wake, milliseconds) => wait(wake, Math.min(milliseconds, 100));

const at = Number(process.env.KILLED_AT ?? 0);
let calls = 0;

function ends(name, last) {
  const real = fs[name];
  fs[name] = (...given) => {
    calls += 1;
    if (calls !== at) return real(...given);
    last(real, given);
    process.kill(process.pid, "SIGKILL");
    for (;;);
  };
}

ends("writeSync", (real, [file, text]) => real(file, text.slice(0, text.length / 2)));
ends("renameSync", (real, given) => real(...given));
