// Requests to the coordinator at one address: bounded, with pauses between them.

import crypto from "node:crypto";
import { setTimeout } from "node:timers/promises";

import {
  canonical,
  enrolmentBody,
  followed,
  headOf,
  ProtocolError,
  receiptOf,
  requireNewer,
  requireThat,
  SetBackError,
  sha256,
  signedRequest,
} from "./protocol.mjs";
import { charterOf } from "./charter.mjs";

// Nothing came back that says what became of a request; it may have arrived.
export class UnreachableError extends Error {
  constructor(reason, retryAfter = 0) {
    super(reason);
    this.retryAfter = retryAfter;
  }
}

const TRY_AGAIN = new Set([408, 429, 500, 502, 503, 504]);
const ANSWER_MILLISECONDS = 20_000;
const PATIENCE_SECONDS = 3600;

// Seconds of a clock that nobody sets.
export const now = () => performance.now() / 1000;

const sleep = (seconds) => setTimeout(1000 * seconds);

// A number drawn uniformly between the two, so that devices do not all ask at once.
const spread = (low, high) =>
  low + ((high - low) * crypto.randomBytes(6).readUIntBE(0, 6)) / 2 ** 48;

// Sleeps; for how long, the coordinator's answers and chance say.
export class Pace {
  constructor() {
    this.timing = { step_seconds: 60, check_in_seconds: 45, answer_seconds: 10, compute_seconds: 5 };
    this.failures = 0;
    this.waited = 0;
  }

  follow({ timing, asksOne }) {
    this.timing = timing;
    this.phase = asksOne ? timing.answer_seconds : timing.check_in_seconds;
    this.gap = Math.min(1, this.phase / 16);
    const room = (this.phase * 7) / 8 - timing.compute_seconds - this.gap;
    this.look = (asksOne ? timing.check_in_seconds : room) / 2;
  }

  // When an update leaves whose computing begins now; null where there is no room for it.
  moment(ends) {
    const first = now() + this.timing.compute_seconds + this.gap;
    const last = ends - this.phase / 8;
    return first <= last ? spread(first, last) : null;
  }

  // When an update leaves whose moment passed while nobody was there.
  lateMoment(ends) {
    return spread(now(), Math.max(now(), ends - this.phase / 8));
  }

  async until(moment) {
    await sleep(Math.max(0, moment - now()));
  }

  // What is prepared of the records takes a time that depends on them: nobody shall see it.
  async untilReady(since) {
    const each = Math.max(this.timing.compute_seconds, 1);
    await this.until(since + each * Math.max(1, Math.ceil((now() - since) / each)));
  }

  heard() {
    this.failures = 0;
    this.waited = 0;
  }

  async afterFailure(error = null) {
    const step = this.timing.step_seconds;
    const shortest = Math.min(0.5, step / 20);
    const longest = Math.min(30, step / 4, shortest * 2 ** Math.min(this.failures, 30));
    this.failures += 1;
    const asked = (error?.retryAfter ?? 0) * spread(1, 1.25);
    const pause = Math.max(spread(longest / 2, longest), asked);
    this.waited += error === null ? 0 : pause;
    if (this.waited > PATIENCE_SECONDS) throw new ProtocolError(`given up: ${error.message}`);
    await sleep(pause);
  }

  async untilAnswers(status) {
    await sleep(status.seconds_left + spread(0, this.timing.answer_seconds / 8));
  }

  async untilStep(status, step) {
    const between = Math.max(0, step - status.step - 1) * this.timing.step_seconds;
    const pause = status.seconds_to_next_step + between;
    const late = spread(0, this.look);
    await sleep(Math.min(pause + late, 600 * spread(0.5, 1)));
  }
}

export class Link {
  constructor(address, memory) {
    const url = new URL(address);
    const here = ["localhost", "127.0.0.1", "[::1]"].includes(url.hostname);
    if (url.protocol !== "https:" && !(url.protocol === "http:" && here)) {
      throw new ProtocolError("https://HOST; http:// to this machine only");
    }
    this.base = url.href.replace(/\/+$/, "");
    this.memory = memory;
    this.terms = null;
    this.model = null; // digest of the model at the memory's head
  }

  // Status and body; at most `limit` bytes of it.
  async exchange(method, path, limit, body = undefined, headers = {}) {
    try {
      const response = await fetch(this.base + path, {
        method,
        body,
        headers: { "Accept-Encoding": "identity", ...headers },
        redirect: "manual",
        signal: AbortSignal.timeout(ANSWER_MILLISECONDS),
      });
      if (TRY_AGAIN.has(response.status)) {
        const after = response.headers.get("Retry-After") ?? "";
        await response.body?.cancel();
        const seconds = /^\d{1,4}$/.test(after) ? Number(after) : 0;
        throw new UnreachableError(`HTTP ${response.status}`, seconds);
      }
      const parts = [];
      let size = 0;
      for await (const part of response.body ?? []) {
        size += part.length;
        requireThat(size <= limit, `an answer of more than ${limit} bytes`);
        parts.push(part);
      }
      return [response.status, Buffer.concat(parts)];
    } catch (error) {
      if (error instanceof ProtocolError || error instanceof UnreachableError) throw error;
      throw new UnreachableError(error.cause?.message ?? error.message);
    }
  }

  async get(path, limit) {
    const [status, body] = await this.exchange("GET", path, limit);
    if (status === 404 || status === 410) throw new UnreachableError(`HTTP ${status}`);
    requireThat(status === 200, `the coordinator answered GET with HTTP ${status}`);
    return body;
  }

  async json(path, limit) {
    const body = await this.get(path, limit);
    try {
      return JSON.parse(body.toString("utf8"));
    } catch {
      throw new ProtocolError(`the coordinator's ${path.split("?")[0]} is no JSON`);
    }
  }

  // What became of a signed request about a step; −1 is the enrolment.
  async post(path, step, body, format) {
    const { fields } = this.memory;
    const { headers } = signedRequest(fields, path, body, format);
    headers["Content-Type"] = "application/octet-stream";
    const [status, answer] = await this.exchange("POST", path, 1 << 16, body, headers);
    const receipt = receiptOf(status, answer);
    if (receipt.answer === "accepted") {
      const about = canonical([receipt.task, receipt.client, receipt.step]);
      const mine = canonical([fields.task, fields.client, step]);
      requireThat(about === mine, "the coordinator's receipt is about something else");
    }
    return receipt;
  }

  enrol(secret) {
    const body = enrolmentBody(this.memory.fields, secret);
    return this.post("/v1/enrolments", -1, body, "enrolment-1");
  }

  async charter() {
    this.terms ??= charterOf(await this.get("/v1/charter", 1 << 26), this.memory.fields);
    return this.terms;
  }

  // How far the run is. A newer head is durable when this returns; an older one is told.
  async status() {
    const asked = now();
    const status = await this.json("/v1/status", 1 << 14);
    const numbers = ["step", "steps", "seconds_left", "seconds_to_next_step", "model_steps"];
    const good =
      status.task === this.memory.fields.task &&
      status.steps === this.terms.steps &&
      ["check-ins", "answers", "closed", "finished"].includes(status.phase) &&
      numbers.every((name) => Number.isFinite(status[name]) && status[name] >= 0) &&
      Number.isSafeInteger(status.step) &&
      status.step <= status.steps &&
      typeof status.head === "string";
    requireThat(good, "the coordinator's status is none, or of another task");
    try {
      await this.#follow(status.head);
    } catch (error) {
      if (error instanceof SetBackError && this.memory.fields.head) await this.#tell();
      throw error;
    }
    const settled = [status.model_steps, headOf(status.head).steps].every((n) => n === status.step);
    const { asksOne, timing } = this.terms;
    const longest = asksOne ? timing.answer_seconds : timing.check_in_seconds;
    return { ...status, settled, ends: asked + Math.min(status.seconds_left, longest) };
  }

  async #follow(text) {
    const { fields } = this.memory;
    const head = requireNewer(text, fields);
    if (fields.head !== null) {
      let at = headOf(fields.head);
      while (at.steps < head.steps) {
        const { records } = await this.json(`/v1/records?from=${at.steps}`, 1 << 24);
        requireThat(Array.isArray(records) && records.length > 0, "the ledger shows no records");
        for (const record of records.slice(0, head.steps - at.steps)) {
          at = followed(fields.task, at, record);
          this.model = { head: at.digest, digest: at.model };
        }
      }
      if (at.digest !== head.digest) throw new SetBackError("the records lead to another head");
    }
    if (fields.head === null || headOf(fields.head).digest !== head.digest) {
      fields.head = text;
      this.memory.keep();
    }
  }

  // Tells the coordinator that there was a newer head; whoever restored it wants to know.
  async #tell() {
    for (const pause of [0.2, 0.8, 2, 0]) {
      try {
        const headers = { "Content-Type": "text/plain" };
        await this.exchange("POST", "/v1/heads", 1 << 16, this.memory.fields.head, headers);
        return;
      } catch {
        await sleep(pause);
      }
    }
  }

  // The parameters that a step begins with, as bytes; those that the ledger names.
  async modelAt(status) {
    const head = headOf(this.memory.fields.head);
    let digest = this.terms.model.digest;
    if (head.steps > 0) {
      if (this.model?.head !== head.digest) {
        const { records } = await this.json(`/v1/records?from=${head.steps - 1}`, 1 << 24);
        const [record] = Array.isArray(records) ? records : [];
        requireThat(record !== undefined, "the ledger does not show its last record");
        const good = record.step === head.steps - 1 && sha256(canonical(record)) === head.digest;
        requireThat(good, "the ledger's last record is not that of its head");
        this.model = { head: head.digest, digest: record.model };
      }
      digest = this.model.digest;
    }
    const size = 4 * this.terms.messages.update.dimension;
    const bytes = await this.get(`/v1/models/${status.step}`, size);
    requireThat(bytes.length === size && sha256(bytes) === digest, "the model is not the ledger's");
    return bytes;
  }
}
