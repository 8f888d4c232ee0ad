// The client's steps, drawn from the invitation and the operating system's random bits alone.

import crypto from "node:crypto";

import { plain, ProtocolError, requireThat } from "./protocol.mjs";

// A uniform whole number in 0 … n − 1: random bits, where numbers of n or more are rejected.
export function below(n, bytes = crypto.randomBytes) {
  const limit = BigInt(n);
  const bits = (limit - 1n).toString(2).length;
  const mask = (1n << BigInt(bits)) - 1n;
  for (;;) {
    const word = BigInt(`0x${bytes(Math.ceil(bits / 8)).toString("hex")}`) & mask;
    if (word < limit) return word;
  }
}

const ONE = 2 ** 62;

// Fields of each law beside `is`, and the steps: u(n) draws, coin(p) tosses.
const LAWS = {
  CheckIn: [
    ["window", "windows", "probability"],
    ({ window: w, windows, probability: p }, { u, coin }) =>
      Array.from({ length: windows }, (_, k) => (coin(p) ? [k * w + u(w)] : [])).flat(),
  ],
  KSubset: [
    ["window", "picks", "windows"],
    ({ window: w, picks, windows }, { u }) =>
      Array.from({ length: windows }, (_, k) => subset(w, picks, u).map((s) => k * w + s)).flat(),
  ],
  FixedAssignment: [
    ["window", "epochs", "probability"],
    ({ window: w, epochs, probability: p }, { u, coin }) => {
      if (!coin(p)) return [];
      const first = u(w);
      return Array.from({ length: epochs }, (_, k) => first + k * w);
    },
  ],
  SlidingWindow: [
    ["window", "slots", "clients_per_slot"],
    ({ window: w, slots, clients_per_slot: c }, { u, client }) => {
      const step = Math.floor(client / c) + u(w) - (w - 1);
      return step >= 0 && step <= slots - w ? [step] : [];
    },
  ],
  SelfSampling: [["rate", "steps"], often],
  PoissonSampling: [["rate", "steps"], often],
  EveryStep: [["steps"], ({ steps }) => Array.from({ length: steps }, (_, k) => k)],
};

function often({ rate, steps }, { coin }) {
  return Array.from({ length: steps }, (_, k) => k).filter(() => coin(rate));
}

// Floyd's: each subset of that size alike.
function subset(window, picks, u) {
  const chosen = new Set();
  for (let top = window - picks; top < window; top += 1) {
    const value = u(top + 1);
    chosen.add(chosen.has(value) ? top : value);
  }
  return [...chosen].sort((a, b) => a - b);
}

// `uniform` gives a BigInt below its argument; tests bring their own.
export function drawnSteps(invitation, uniform = below) {
  const { is, ...fields } = plain(invitation.law);
  if (!Object.hasOwn(LAWS, is)) throw new ProtocolError(`this device does not draw by ${is}`);
  const [known, steps] = LAWS[is];
  const same = Object.keys(fields).sort().join() === [...known].sort().join();
  requireThat(same, `this device does not know the fields of the law ${is}`);
  const draws = {
    client: invitation.client,
    u: (n) => Number(uniform(n)),
    coin: (p) => p === 1 || uniform(1n << 62n) < BigInt(Math.floor(p * ONE)),
  };
  return steps(fields, draws);
}
