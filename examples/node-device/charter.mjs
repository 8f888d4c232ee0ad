// The charter; an unknown name or field in it ends the device.

import { canonical, plain, ProtocolError, requireThat, sha256 } from "./protocol.mjs";
import { dimensionOf } from "./update.mjs";

const FIELDS = {
  "": [
    "charged", "charged_steps", "client", "coordinator_key", "delta", "expected_check_ins",
    "format", "messages", "minibatch", "model", "plan", "population", "scheme", "target", "timing",
  ],
  client: ["format", "learning_rate", "steps"],
  messages: ["enrolment", "head", "record", "request", "update"],
  "messages.enrolment": ["format"],
  "messages.head": ["format"],
  "messages.record": ["format"],
  "messages.request": ["format"],
  "messages.update": ["clip_norm", "dimension", "format", "step"],
  model: ["architecture", "digest", "features", "format"],
  "model.architecture": ["classes", "format"],
  "model.features": ["format", "input_shape"],
  scheme: ["is", "participation", "randomizer", "relation", "release", "trust", "unit"],
  timing: ["answer_seconds", "check_in_seconds", "compute_seconds", "step_seconds"],
};

const FORMATS = {
  "": ["turnout-charter-1"],
  model: ["float32-le-1"],
  "model.architecture": ["logistic-1", "tanh-cnn-13k-1", "tanh-cnn-26k-1"],
  "model.features": ["pixels-1", "standardized-1"],
  client: ["gradient-descent-1"],
  "messages.enrolment": ["enrolment-1"],
  "messages.head": ["turnout-head-1"],
  "messages.record": ["record-1"],
  "messages.request": ["turnout-request-1"],
  "messages.update": ["int32-lattice-1"],
};

const at = (document, place) =>
  place === "" ? document : place.split(".").reduce((inner, key) => inner?.[key], document);

// Refuses what this device does not know, and says which it is.
export function requireKnown(document) {
  for (const [place, known] of Object.entries(FORMATS)) {
    const name = at(document, place)?.format;
    requireThat(
      known.includes(name),
      `this device does not know the format ${JSON.stringify(name)} of ${place || "the charter"}`,
    );
  }
  for (const [place, known] of Object.entries(FIELDS)) {
    const found = Object.keys(at(document, place) ?? {}).sort();
    requireThat(
      canonical(found) === canonical([...known].sort()),
      `this device does not know the fields of ${place || "the charter"}: ${found.join(", ")}`,
    );
  }
}

// The terms in a charter's bytes, if it is the one that the memory's invitation names.
export function charterOf(bytes, memory) {
  requireThat(sha256(bytes) === memory.task, "the charter is not the one of the invitation");
  let document;
  try {
    document = JSON.parse(bytes.toString("ascii"));
  } catch {
    throw new ProtocolError("the charter is no JSON");
  }
  requireKnown(document);
  const terms = plain(document);
  const law = canonical(plain(memory.law));
  requireThat(canonical(terms.scheme.participation) === law, "the charter has another law");
  requireThat(terms.population === memory.population, "the charter has another population");
  requireThat(terms.coordinator_key === memory.key, "the charter has another coordinator's key");
  const release = terms.scheme.release.value;
  requireThat(["aggregated", "one-client"].includes(release), `no release rule: ${release}`);
  const { step, clip_norm: clip, dimension } = terms.messages.update;
  requireThat(step > 0 && clip > 0 && dimension === dimensionOf(terms.model), "no such dimension");
  return { ...terms, steps: terms.charged_steps.at(-1), asksOne: release === "one-client" };
}
