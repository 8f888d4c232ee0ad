// Test vectors of docs/device-protocol.md; run them with: node --test

import assert from "node:assert/strict";
import fs from "node:fs";
import test from "node:test";

import { charterOf, requireKnown } from "./charter.mjs";
import { below, drawnSteps } from "./draw.mjs";
import { moved } from "./memory.mjs";
import * as protocol from "./protocol.mjs";
import * as update from "./update.mjs";

const PLACE = new URL("../../tests/vectors/device-protocol.json", import.meta.url);
const V = JSON.parse(fs.readFileSync(PLACE, "utf8"));
const { task } = V.charter;

const memory = () => ({
  ...V.invitation,
  private: V.keys.device.private,
  head: V.heads[2].text,
});

test("keys", () => {
  for (const { private: secret, public: shown } of Object.values(V.keys)) {
    assert.equal(protocol.publicKeyOf(secret), shown);
  }
  const key = protocol.newPrivateKey();
  assert.ok(protocol.isSignedBy(protocol.publicKeyOf(key), protocol.sign(key, "a"), "a"));
});

test("hexadecimal floats", () => {
  const known = { "0x1.8p+1": 3, "-0x1.0p-1": -0.5, "0x0.0p+0": 0, "0x0.0000000000001p-1022": 5e-324 };
  for (const [text, value] of Object.entries(known)) assert.equal(protocol.unhexed(text), value);
  assert.throws(() => protocol.unhexed("1.5"));
});

test("the charter", () => {
  const bytes = Buffer.from(V.charter.body, "ascii");
  assert.equal(protocol.sha256(bytes), task);
  const terms = charterOf(bytes, memory());
  assert.equal(terms.steps, 8);
  assert.equal(terms.asksOne, false);
  assert.equal(terms.timing.step_seconds, 8);
  assert.equal(protocol.canonical(JSON.parse(V.charter.body)), V.charter.body);
  assert.throws(() => charterOf(Buffer.from(`${V.charter.body} `), memory()), /invitation/);
  const others = { population: 21, key: "0".repeat(64), law: { ...V.invitation.law, window: 5 } };
  for (const [name, other] of Object.entries(others)) {
    assert.throws(() => charterOf(bytes, { ...memory(), [name]: other }), /another/);
  }
});

test("formats that are not known are refused, and fields too", () => {
  for (const { place, known, refused } of V.formats) {
    const document = JSON.parse(V.charter.body);
    const inner = place.slice(0, -1).reduce((one, key) => one[key], document);
    assert.equal(inner[place.at(-1)], known);
    requireKnown(document);
    inner[place.at(-1)] = refused;
    assert.throws(() => requireKnown(document), new RegExp(refused));
    inner[place.at(-1)] = known;
    inner.more = 1;
    assert.throws(() => requireKnown(document), /fields .*more/);
  }
});

test("the invitation", () => {
  const { token, ...fields } = V.invitation;
  assert.deepEqual(protocol.invitationOf(`${token}\n`), fields);
  for (const wrong of ["", "turnout1.", token.slice(0, 90), `turnout2${token.slice(8)}`]) {
    assert.throws(() => protocol.invitationOf(wrong), protocol.ProtocolError);
  }
});

test("draws", () => {
  for (const { law, client, drawn, slots } of V.draws) {
    const left = [...drawn];
    const chosen = (n) => {
      const draw = left.shift();
      assert.equal(BigInt(draw.below), BigInt(n));
      return BigInt(draw.gives);
    };
    assert.deepEqual(drawnSteps({ law, client }, chosen), slots);
    assert.equal(left.length, 0);
    assert.throws(() => drawnSteps({ law: { ...law, more: 1 }, client }, chosen), /fields/);
  }
  assert.throws(() => drawnSteps({ law: { is: "FixedSize" }, client: 1 }), /FixedSize/);
});

test("uniform draws reject what is too large, and do not take a remainder", () => {
  const words = [0b111, 0b101, 0b110, 0b011];
  assert.equal(below(5, () => Buffer.from([words.shift()])), 3n);
  assert.equal(words.length, 0);
  const many = Array.from({ length: 200 }, () => below(3));
  assert.deepEqual([...new Set(many)].sort(), [0n, 1n, 2n]);
});

test("a coin of a half", () => {
  const law = { is: "CheckIn", window: 4, windows: 1, probability: { float: "0x1.0p-1" } };
  const tossed = (value) => (n) => (n === 1n << 62n ? value : 2n);
  assert.deepEqual(drawnSteps({ law, client: 0 }, tossed((1n << 61n) - 1n)), [2]);
  assert.deepEqual(drawnSteps({ law, client: 0 }, tossed(1n << 61n)), []);
});

test("heads and records", () => {
  let head = { steps: 0, digest: task };
  V.heads.forEach(({ signed, text }, steps) => {
    if (steps > 0) {
      const { body, digest } = V.records[steps - 1];
      head = protocol.followed(task, head, JSON.parse(body));
      assert.equal(head.digest, digest);
      const forged = { ...JSON.parse(body), step: 7 };
      assert.throws(() => protocol.followed(task, head, forged), protocol.SetBackError);
      assert.throws(() => protocol.followed(task, head, { ...JSON.parse(body), more: 1 }));
    }
    const found = protocol.requireNewer(text, { ...memory(), head: null });
    assert.deepEqual([found.steps, found.digest], [head.steps, head.digest]);
    assert.equal(protocol.headText(task, found), signed);
    if (steps < 2) assert.throws(() => protocol.requireNewer(text, memory()), protocol.SetBackError);
    const unsigned = text.slice(0, -2) + (text.endsWith("00") ? "01" : "00");
    assert.throws(() => protocol.requireNewer(unsigned, memory()), /signature/);
  });
  assert.equal(V.telling.body, V.heads[2].text);
});

test("requests", () => {
  V.requests.forEach(({ path, body, signed, headers }) => {
    const bytes = Buffer.from(body, "hex");
    const format = headers["Turnout-Format"];
    const mine = { ...memory(), head: headers["Turnout-Head"] ?? null };
    const nonce = Buffer.from(headers["Turnout-Nonce"], "hex");
    const made = protocol.signedRequest(mine, path, bytes, format, nonce);
    assert.equal(made.signed, signed);
    assert.deepEqual(made.headers, headers);
  });
  const enrolment = protocol.enrolmentBody(memory(), V.invitation.secret);
  assert.equal(enrolment.toString("hex"), V.requests[0].body);
});

test("receipts", () => {
  for (const { status, body } of V.receipts) {
    const receipt = protocol.receiptOf(status, Buffer.from(body));
    assert.equal(receipt.answer, JSON.parse(body).answer);
    const other = status === 200 ? 410 : 200;
    assert.throws(() => protocol.receiptOf(other, Buffer.from(body)), /contradict/);
  }
  assert.equal(protocol.receiptOf(418, Buffer.alloc(0)).answer, "refused");
  assert.throws(() => protocol.receiptOf(302, Buffer.alloc(0)), /HTTP 302/);
});

test("the lattice", () => {
  const [step, clip] = [V.lattice.step, V.lattice.clip_norm].map(protocol.unhexed);
  assert.equal(update.normSquaredLimit(clip, step), BigInt(V.lattice.norm_squared_limit));
  for (const { update: given, quantised, body } of V.lattice.updates) {
    const q = update.quantised(given.map(protocol.unhexed), clip, step);
    assert.deepEqual(q, quantised);
    assert.equal(update.encoded(q).toString("hex"), body);
  }
});

// A list, or a formula.
function filled(given) {
  if (Array.isArray(given)) return given.map(Math.fround);
  const { length, multiplier: a, modulus: b, scale } = given;
  return Array.from({ length }, (_, i) => Math.fround(scale * (((a * i) % b) / b - 0.5)));
}

const every = (values, n) => Array.from(values).filter((_, i) => i % n === 0);

for (const vector of V.updates) {
  test(`update: ${vector.name}`, () => {
    const [model, client, format] = ["model", "client", "update_format"].map((name) =>
      protocol.plain(vector[name]),
    );
    const parameters = filled(vector.parameters);
    assert.equal(update.dimensionOf(model), parameters.length);
    const records = vector.records.map(({ input, label }) => ({ input: filled(input), label }));
    records.forEach(({ input }, i) => {
      const features = every(update.featuresOf(model.features.format, input), vector.every);
      assert.equal(features.length, vector.features[i].length);
      features.forEach((x, j) => {
        const told = vector.features[i][j];
        const ulp = 2 ** (Math.max(-14, Math.floor(Math.log2(Math.abs(told)))) - 10);
        assert.ok(x === told || Math.abs(x - told) <= ulp, `feature ${j}: ${x}, ${told}`);
      });
    });
    const made = update.movedBy(model, client, parameters, records);
    if (vector.norm !== undefined) {
      const near = (x, y, what) =>
        assert.ok(Math.abs(x - y) <= 1e-5 * vector.norm, `${what}: ${x}, ${y}`);
      near(update.normOf(made), vector.norm, "norm");
      every(made, vector.every).forEach((x, i) => near(x, vector.moved[i], `moved ${i}`));
    } else {
      assert.ok(!(update.normOf(made) <= 1e30));
    }
    const q = update.quantised(update.clipped(made, format.clip_norm), format.clip_norm, format.step);
    const limit = update.normSquaredLimit(format.clip_norm, format.step);
    assert.equal(limit, BigInt(vector.norm_squared_limit));
    assert.ok(q.reduce((sum, value) => sum + BigInt(value) ** 2n, 0n) <= limit);
    every(q, vector.every).forEach((value, i) =>
      assert.ok(Math.abs(value - vector.quantised[i]) <= 1, `q ${i}: ${value}`),
    );
  });
}

test("binary16", () => {
  const known = [[0.1, 0.0999755859375], [1 + 2 ** -11, 1], [1 + 3 * 2 ** -11, 1 + 2 ** -9]];
  known.push([65504, 65504], [2 ** -25, 0], [3 * 2 ** -25, 2 ** -23], [-0.1, -0.0999755859375]);
  for (const [x, half] of known) assert.equal(update.toHalf(x) + 0, half);
});

const EVENTS = ["earlier", "own", "later", "close", "refused", "asked"];

test("the state table", () => {
  for (const [state, row] of Object.entries(V.client_table)) {
    Object.values(row).forEach((next, i) => {
      if (next === "refuse") assert.throws(() => moved(state, EVENTS[i]), protocol.ProtocolError);
      else assert.equal(moved(state, EVENTS[i]), next);
    });
  }
});
