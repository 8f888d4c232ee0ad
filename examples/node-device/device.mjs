// A device of a turnout task:
//
//   node device.mjs URL --invitation FILE --records FILE --state FILE

import fs from "node:fs";
import { parseArgs } from "node:util";

import { Link, now, Pace, UnreachableError } from "./link.mjs";
import { Memory, MemoryError } from "./memory.mjs";
import { invitationOf, ProtocolError, requireThat, sha256 } from "./protocol.mjs";
import { encoded } from "./update.mjs";
import { computed } from "./worker.mjs";

class Device {
  constructor(invitation, memory, link, lines) {
    Object.assign(this, { invitation, memory, link, lines, pace: new Pace() });
    this.model = null; // { step, bytes }
    this.checkedIn = -1;
    this.due = -1; // the last step whose moment this process waited for
  }

  async run() {
    const terms = await this.#patiently(() => this.link.charter());
    this.pace.follow(terms);
    const heard = now();
    this.records = recordsOf(this.lines, terms.model);
    await this.pace.untilReady(heard);
    await this.#patiently(() => this.#enrol());
    while (await this.#look());
    const ends = Object.values(this.memory.fields.answers);
    return [...new Set(ends)].map((end) => `${ends.filter((one) => one === end).length} ${end}`);
  }

  async #patiently(ask) {
    for (;;) {
      try {
        const said = await ask();
        this.pace.heard();
        return said;
      } catch (error) {
        if (!(error instanceof UnreachableError)) throw error;
        await this.pace.afterFailure(error);
      }
    }
  }

  async #enrol() {
    const { fields } = this.memory;
    if (fields.enrolled) return;
    const receipt = await this.link.enrol(this.invitation.secret);
    const why = receipt.detail ?? receipt.answer;
    requireThat(receipt.answer === "accepted", `the invitation is not accepted: ${why}`);
    fields.enrolled = true;
    this.memory.keep();
  }

  // Looks at the step in progress and sleeps; false once there is nothing left to do.
  async #look() {
    const status = await this.#patiently(() => this.link.status());
    const { slots } = this.memory.fields;
    if (status.phase === "finished") {
      this.memory.opened(this.link.terms.steps);
      this.memory.keep();
      return false;
    }
    this.#move(status);
    if (this.#hasTurn(status.step)) {
      try {
        const again = !status.settled || (await this.#take(status)) === "again";
        if (again) await this.pace.afterFailure();
        else this.pace.heard();
      } catch (error) {
        if (!(error instanceof UnreachableError)) throw error;
        await this.pace.afterFailure(error);
      }
      return true;
    }
    const waiting = Object.keys(slots).map(Number).filter((step) => slots[step] === "waiting");
    const ahead = waiting.filter((step) => step > status.step);
    if (ahead.length === 0) return false;
    await this.pace.untilStep(status, Math.min(...ahead));
    return true;
  }

  // Every own step hears of the one in progress; durable before anything is sent for it.
  #move({ step, phase, ends }) {
    const { slots } = this.memory.fields;
    const before = JSON.stringify(slots);
    const { asksOne } = this.link.terms;
    const begins = phase === "check-ins" && (asksOne || this.pace.moment(ends) !== null);
    const goesOn = begins || (asksOne && phase === "answers");
    const over =
      (slots[step] === "waiting" && !begins) || (slots[step] === "checked in" && !goesOn);
    if (over) this.memory.move(step, "close");
    this.memory.opened(step);
    if (JSON.stringify(slots) === before) return;
    this.memory.forget((own) => own < step);
    this.memory.keep();
  }

  #hasTurn(step) {
    const { slots, answers } = this.memory.fields;
    const unconfirmed = slots[step] === "answered" && !(step in answers);
    return slots[step] === "checked in" || unconfirmed;
  }

  async #take(status) {
    const { step, phase, ends } = status;
    const { slots, moments } = this.memory.fields;
    if (slots[step] === "checked in") {
      if (this.model?.step !== step) this.model = { step, bytes: await this.link.modelAt(status) };
      if (this.link.terms.asksOne) {
        const end = phase === "check-ins" ? await this.#checkIn(status) : await this.#hear(step);
        if (end !== "asked") return end;
      }
      const moment = this.pace.moment(ends);
      if (moment === null) return this.#closed(step); // the network was slow
      // The moment is drawn, and stored, before the records are opened.
      this.memory.move(step, "asked");
      moments[step] = ends - moment;
      this.memory.keep();
      const { terms } = this.link;
      const bound = terms.timing.compute_seconds;
      const begun = now();
      const body = await computed(terms, this.model.bytes, this.records, bound);
      await this.pace.until(begun + bound); // nothing after this begins at a time of the records
      this.#store(step, body);
    }
    if (this.due !== step) await this.#awaitMoment(status);
    return this.#send(step);
  }

  // What leaves at the moment: the zero vector where there is no update.
  #store(step, body) {
    const { dimension } = this.link.terms.messages.update;
    this.memory.fields.messages[step] = (body ?? encoded(new Array(dimension).fill(0))).toString("hex");
    this.memory.keep();
  }

  // A process that was ended goes on with what is stored, and computes nothing again. Where the
  // moment has passed meanwhile, one is drawn from what is left of the phase.
  async #awaitMoment({ step, phase, ends }) {
    const { messages, moments } = this.memory.fields;
    if (!(step in messages)) this.#store(step, null);
    let moment = ends - moments[step];
    if (phase !== (this.link.terms.asksOne ? "answers" : "check-ins") || moment < now()) {
      moment = this.pace.lateMoment(ends);
      moments[step] = ends - moment;
      this.memory.keep();
    }
    await this.pace.until(moment);
    this.due = step;
  }

  async #checkIn(status) {
    const { step } = status;
    if (this.checkedIn === step) return this.pace.untilAnswers(status);
    const receipt = await this.link.post(`/v1/steps/${step}/check-ins`, step, Buffer.alloc(0));
    if (receipt.answer !== "accepted") return this.#turnedDown(step, receipt);
    this.checkedIn = step;
    return "done";
  }

  async #hear(step) {
    const receipt = await this.link.post(`/v1/steps/${step}/requests`, step, Buffer.alloc(0));
    if (receipt.answer !== "accepted") return this.#turnedDown(step, receipt);
    if (receipt.asked === true) return "asked";
    if (receipt.asked !== false) return "again";
    return this.#closed(step);
  }

  #closed(step) {
    this.memory.move(step, "close");
    this.memory.keep();
    return "done";
  }

  #turnedDown(step, receipt) {
    if (receipt.answer === "early") return "again";
    this.memory.move(step, receipt.answer === "late" ? "close" : "refused");
    return this.#noted(step, receipt);
  }

  async #send(step) {
    const body = Buffer.from(this.memory.fields.messages[step], "hex");
    const digest = sha256(body);
    const format = this.link.terms.messages.update.format;
    const receipt = await this.link.post(`/v1/steps/${step}/updates`, step, body, format);
    if (receipt.answer === "early") return "again";
    const mine = receipt.answer !== "accepted" || receipt.digest === digest;
    requireThat(mine, "the coordinator's receipt is for another update");
    return this.#noted(step, receipt);
  }

  #noted(step, receipt) {
    this.memory.fields.answers[step] = receipt.answer;
    this.memory.forget((own) => own === step);
    this.memory.keep();
    return "done";
  }
}

// One client's records: a JSON object a line, { "input": numbers (nested or flat), "label": 3 }.
function recordsOf(text, { architecture, features }) {
  const size = features.input_shape.reduce((all, side) => all * side, 1);
  const lines = text.split("\n").filter((line) => line.trim());
  return lines.map((line, i) => {
    const where = `line ${i + 1} of the records`;
    let record;
    try {
      record = JSON.parse(line);
    } catch {
      throw new TypeError(`${where} is no JSON`);
    }
    const input = [record?.input].flat(Infinity).map(Math.fround);
    if (input.length !== size || !input.every(Number.isFinite)) {
      throw new TypeError(`${where}: input must be ${size} numbers`);
    }
    const { label } = record;
    if (!Number.isInteger(label) || label < 0 || label >= architecture.classes) {
      throw new TypeError(`${where}: label must be from 0 to ${architecture.classes - 1}`);
    }
    return { input, label };
  });
}

const EXITS = [
  [ProtocolError, 5],
  [MemoryError, 4],
];

async function main() {
  const text = { type: "string" };
  const options = { invitation: text, records: text, state: text };
  const { values, positionals } = parseArgs({ options, allowPositionals: true });
  if (positionals.length !== 1 || Object.keys(values).length !== 3) {
    throw new TypeError("node device.mjs URL --invitation FILE --records FILE --state FILE");
  }
  const invitation = invitationOf(fs.readFileSync(values.invitation, "ascii"));
  const lines = fs.readFileSync(values.records, "utf8");
  const memory = await Memory.open(values.state, invitation);
  const device = new Device(invitation, memory, new Link(positionals[0], memory), lines);
  const turns = await device.run();
  process.stdout.write(`turns: ${turns.join(", ") || "none"}\n`);
}

try {
  await main();
} catch (error) {
  process.stderr.write(`node-device: ${error.message}\n`);
  process.exitCode = EXITS.find(([kind]) => error instanceof kind)?.[1] ?? 2;
}
