// Messages of docs/device-protocol.md: their texts, signatures and checks.

import crypto from "node:crypto";

export class ProtocolError extends Error {}

// The coordinator was set back; the device tells it the head that it has.
export class SetBackError extends ProtocolError {}

export const sha256 = (bytes) => crypto.createHash("sha256").update(bytes).digest("hex");

export function requireThat(holds, message) {
  if (!holds) throw new ProtocolError(message);
}

// JSON with sorted keys and no spaces; what is signed or hashed here is ASCII without floats.
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value !== null && typeof value === "object") {
    const keys = Object.keys(value).sort();
    return `{${keys.map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join(",")}}`;
  }
  return JSON.stringify(value);
}

const FLOAT = /^(-?)0x([01])(?:\.([0-9a-f]{1,13}))?p([+-]\d{1,4})$/;

// The number that C's %a writes, exactly.
export function unhexed(text) {
  const parts = FLOAT.exec(text);
  requireThat(parts !== null, `not a hexadecimal float: ${text}`);
  const digits = parts[3] ?? "";
  const mantissa = parseInt(parts[2] + digits, 16);
  const exponent = Number(parts[4]) - 4 * digits.length;
  const half = Math.trunc(exponent / 2); // one power of two alone may underflow
  const value = mantissa * 2 ** half * 2 ** (exponent - half);
  return parts[1] ? -value : value;
}

// {"float": hex} as numbers, all through.
export function plain(value) {
  if (Array.isArray(value)) return value.map(plain);
  if (value === null || typeof value !== "object") return value;
  const keys = Object.keys(value);
  if (keys.length === 1 && keys[0] === "float") return unhexed(value.float);
  return Object.fromEntries(keys.map((key) => [key, plain(value[key])]));
}

const HEX32 = /^[0-9a-f]{64}$/;
const isCount = (value) => Number.isSafeInteger(value) && value >= 0;

export function invitationOf(token) {
  const [kind, payload] = token.trim().split(".");
  let fields;
  try {
    fields = JSON.parse(Buffer.from(payload, "base64url").toString("ascii"));
  } catch {
    throw new ProtocolError("that is no invitation");
  }
  const good =
    kind === "turnout1" &&
    [fields.task, fields.key, fields.secret].every((text) => HEX32.test(text)) &&
    [fields.client, fields.population].every(isCount);
  requireThat(good, "that is no invitation");
  return fields;
}

// -- keys ---------------------------------------------------------------------------------------

const PKCS8 = Buffer.from("302e020100300506032b657004220420", "hex");
const SPKI = Buffer.from("302a300506032b6570032100", "hex");

const privateKey = (hex) =>
  crypto.createPrivateKey({
    key: Buffer.concat([PKCS8, Buffer.from(hex, "hex")]),
    format: "der",
    type: "pkcs8",
  });

export function newPrivateKey() {
  const { privateKey: key } = crypto.generateKeyPairSync("ed25519");
  return key.export({ format: "der", type: "pkcs8" }).subarray(-32).toString("hex");
}

export const publicKeyOf = (hex) =>
  crypto
    .createPublicKey(privateKey(hex))
    .export({ format: "der", type: "spki" })
    .subarray(-32)
    .toString("hex");

export const sign = (privateHex, text) =>
  crypto.sign(null, Buffer.from(text, "ascii"), privateKey(privateHex)).toString("hex");

export function isSignedBy(publicHex, signatureHex, text) {
  const key = Buffer.concat([SPKI, Buffer.from(publicHex, "hex")]);
  const parsed = crypto.createPublicKey({ key, format: "der", type: "spki" });
  return crypto.verify(null, Buffer.from(text, "ascii"), parsed, Buffer.from(signatureHex, "hex"));
}

// -- requests -----------------------------------------------------------------------------------

// Text and headers of a signed POST. `memory` has task, client, private and head (or null).
export function signedRequest(memory, path, body, format, nonce = crypto.randomBytes(16)) {
  const lines = {
    task: memory.task,
    method: "POST",
    path,
    client: String(memory.client),
    nonce: nonce.toString("hex"),
    head: memory.head,
    format: body.length ? format : null,
    digest: sha256(body),
  };
  const said = Object.entries(lines).filter(([, value]) => value);
  const text = ["turnout-request-1", ...said.map(([name, value]) => `${name}: ${value}`)];
  const headers = {
    "Turnout-Client": lines.client,
    "Turnout-Nonce": lines.nonce,
    "Turnout-Digest": lines.digest,
  };
  if (lines.head) headers["Turnout-Head"] = lines.head;
  if (lines.format) headers["Turnout-Format"] = lines.format;
  const signed = text.join("\n");
  headers["Turnout-Signature"] = sign(memory.private, signed);
  return { signed, headers };
}

export function enrolmentBody(memory, secret) {
  const fields = { client: memory.client, public_key: publicKeyOf(memory.private), secret };
  return Buffer.from(canonical(fields), "ascii");
}

export const ANSWERS = {
  200: "accepted",
  401: "unknown",
  409: "conflict",
  410: "late",
  422: "refused",
  425: "early",
};

// The receipt in an answer; another 4xx says that something in between refused.
export function receiptOf(status, bytes) {
  const answer = ANSWERS[status];
  if (answer === undefined) {
    requireThat(status >= 400 && status < 500, `the coordinator answered with HTTP ${status}`);
    return { answer: "refused", detail: `HTTP ${status}` };
  }
  let receipt;
  try {
    receipt = JSON.parse(bytes.toString("utf8"));
  } catch {
    receipt = null;
  }
  if (receipt === null || typeof receipt !== "object" || !("answer" in receipt)) {
    requireThat(answer !== "accepted", "the coordinator's receipt is none");
    return { answer, detail: `HTTP ${status}` };
  }
  requireThat(receipt.answer === answer, `HTTP ${status} and the receipt contradict each other`);
  return receipt;
}

// -- heads and records --------------------------------------------------------------------------

export function headOf(text) {
  const parts = /^(0|[1-9][0-9]{0,17}):([0-9a-f]{64}):([0-9a-f]{128})$/.exec(text);
  requireThat(parts !== null, "that is no signed head");
  return { steps: Number(parts[1]), digest: parts[2], signature: parts[3], text };
}

export const headText = (task, head) => `turnout-head-1\n${task}\n${head.steps}:${head.digest}`;

// The head in a status, if it is signed and not behind the one that was seen.
export function requireNewer(text, memory) {
  const head = headOf(text);
  const signed = isSignedBy(memory.key, head.signature, headText(memory.task, head));
  requireThat(signed, "the head does not bear the coordinator's signature");
  requireThat(head.steps > 0 || head.digest === memory.task, "the ledger has another beginning");
  if (memory.head !== null) {
    const seen = headOf(memory.head);
    const forked = head.steps === seen.steps && head.digest !== seen.digest;
    if (head.steps < seen.steps || forked) {
      throw new SetBackError(`the coordinator was set back from ${seen.steps} to ${head.steps}`);
    }
  }
  return head;
}

const RECORD = ["delta", "epsilon", "model", "previous", "step", "sum", "task"];

// The head after a record that follows on another head, and the model it leads to.
export function followed(task, before, record) {
  const keys = Object.keys(record).sort();
  requireThat(canonical(keys) === canonical(RECORD), "a record of a format that is not known");
  const follows =
    record.task === task && record.step === before.steps && record.previous === before.digest;
  if (!follows) throw new SetBackError("the ledger does not go on from where it was seen");
  return { steps: before.steps + 1, digest: sha256(canonical(record)), model: record.model };
}
