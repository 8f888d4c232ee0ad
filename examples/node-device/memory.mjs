// State file of the device: synced before each request, locked by one process, drawn once.

import { spawn } from "node:child_process";
import crypto from "node:crypto";
import fs from "node:fs";
import path from "node:path";

import { canonical, newPrivateKey, ProtocolError, sha256 } from "./protocol.mjs";
import { drawnSteps } from "./draw.mjs";

export class MemoryError extends Error {}

const FORMAT = "node-device-memory-1";
const EVENTS = ["earlier", "own", "later", "close", "refused", "asked"];
const STAYS = null;
const REFUSE = undefined;

// Where a step stands, and where each event moves it: null stays, undefined breaks the protocol.
const ROWS = {
  waiting: [STAYS, "checked in", "missed", "missed", REFUSE, REFUSE],
  "checked in": [REFUSE, STAYS, "passed over", "passed over", "refused", "answered"],
  answered: [REFUSE, STAYS, STAYS, STAYS, REFUSE, REFUSE],
  "passed over": [REFUSE, STAYS, STAYS, STAYS, REFUSE, REFUSE],
  missed: [REFUSE, STAYS, STAYS, STAYS, REFUSE, REFUSE],
  refused: [REFUSE, STAYS, STAYS, STAYS, STAYS, REFUSE],
};

export function moved(state, event) {
  const next = ROWS[state][EVENTS.indexOf(event)];
  if (next === REFUSE) throw new ProtocolError(`a step that is ${state} cannot be ${event}`);
  return next ?? state;
}

// Holds the memory for as long as this process lives, whatever ends it. Node has no flock(2), so
// util-linux's program holds it: it ends when its input does, and its input is this process's.
async function lock(file) {
  const holder = spawn("flock", ["--wait", "2", `${file}.lock`, "cat"], {
    stdio: ["pipe", "pipe", "ignore"],
    detached: true, // Ctrl-C is for this process, which then lets go
  });
  const held = await new Promise((resolve) => {
    holder.once("error", () => resolve(false));
    holder.once("exit", () => resolve(false));
    holder.stdin.on("error", () => resolve(false));
    holder.stdout.once("data", () => resolve(true)); // cat says it back once it runs
    holder.stdin.write("held\n");
  });
  if (!held) throw new MemoryError(`${file} is used by another process, or flock is missing`);
  for (const part of [holder, holder.stdin, holder.stdout]) part.unref();
  return holder;
}

export class Memory {
  constructor(file, fields, held) {
    this.file = file;
    this.fields = fields;
    this.held = held;
  }

  // The memory in a file, or a new one: drawn, and durable when this returns.
  static async open(file, invitation) {
    const held = await lock(file);
    const { task, key, client, population, law } = invitation;
    const whose = { task, key, client, population, law };
    const folder = path.dirname(path.resolve(file));
    for (const name of fs.readdirSync(folder)) {
      // What a process that was ended left half written; nobody else writes here.
      const left = name.startsWith(`${path.basename(file)}.`) && name.endsWith(".new");
      if (left) fs.unlinkSync(path.join(folder, name));
    }
    if (fs.existsSync(file)) {
      const fields = Memory.read(file);
      for (const [name, value] of Object.entries(whose)) {
        if (canonical(fields[name]) !== canonical(value)) {
          throw new MemoryError(`${file} is the memory of another ${name}`);
        }
      }
      return new Memory(file, fields, held);
    }
    const slots = Object.fromEntries(drawnSteps(invitation).map((step) => [step, "waiting"]));
    const fresh = { ...whose, private: newPrivateKey(), slots, moments: {}, messages: {} };
    const memory = new Memory(file, { ...fresh, answers: {}, enrolled: false, head: null }, held);
    memory.keep();
    return memory;
  }

  static read(file) {
    try {
      const { digest, format, ...fields } = JSON.parse(fs.readFileSync(file, "utf8"));
      if (format === FORMAT && digest === sha256(canonical(fields))) return fields;
    } catch {
      // told below
    }
    throw new MemoryError(`${file} is damaged; this device has no turns left, and must not draw`);
  }

  // Durable when it returns: written beside, synced, renamed, the folder synced.
  keep() {
    const text = { ...this.fields, format: FORMAT, digest: sha256(canonical(this.fields)) };
    const beside = `${this.file}.${crypto.randomBytes(6).toString("hex")}.new`;
    try {
      const file = fs.openSync(beside, "wx", 0o600);
      fs.writeSync(file, `${JSON.stringify(text)}\n`);
      fs.fsyncSync(file);
      fs.closeSync(file);
      fs.renameSync(beside, this.file);
      const folder = fs.openSync(path.dirname(path.resolve(this.file)), "r");
      fs.fsyncSync(folder);
      fs.closeSync(folder);
    } catch (error) {
      throw new MemoryError(`${this.file} cannot be written: ${error.message}`);
    }
  }

  // Gives up what was not answered in earlier steps, or in one that was.
  forget(gone) {
    for (const held of [this.fields.moments, this.fields.messages]) {
      for (const step of Object.keys(held)) if (gone(Number(step))) delete held[step];
    }
  }

  // An event for one step; true where it moved.
  move(step, event) {
    const before = this.fields.slots[step];
    this.fields.slots[step] = moved(before, event);
    return before !== this.fields.slots[step];
  }

  // A step of the run opens, for all own steps.
  opened(step) {
    for (const own of Object.keys(this.fields.slots).map(Number)) {
      this.move(own, step < own ? "earlier" : step === own ? "own" : "later");
    }
  }
}
