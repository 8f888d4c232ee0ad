// Ends the process, as kill -9 does, at the n-th call that changes a file: half way through a
// write, and right after a file took its place. (Syncing makes no difference to a kill.)
// And lets nobody wait for long, unless IN_TIME is set: a moment comes soon.

import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import timers from "node:timers/promises";

const wait = timers.setTimeout;
if (!process.env.IN_TIME) {
  timers.setTimeout = (milliseconds) => wait(Math.min(milliseconds, 20));
  syncBuiltinESMExports();
}

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
