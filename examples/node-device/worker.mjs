// Computation in a separate thread, which ends at its time limit or with the process.

import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";

import { parametersOf, updateBody } from "./update.mjs";

if (!isMainThread && workerData?.terms) {
  const { terms, model, records } = workerData;
  parentPort.postMessage(updateBody(terms, parametersOf(Buffer.from(model)), records));
}

// The bytes of an update; null where it fails, or takes longer.
export async function computed(terms, model, records, seconds) {
  const made = { workerData: { terms, model, records }, stdout: true, stderr: true };
  const worker = new Worker(new URL(import.meta.url), made);
  const body = await new Promise((resolve) => {
    worker.once("message", (bytes) => resolve(Buffer.from(bytes)));
    worker.once("error", () => resolve(null));
    worker.once("exit", () => resolve(null));
    AbortSignal.timeout(Math.round(1000 * seconds)).addEventListener("abort", () => resolve(null));
  });
  await worker.terminate();
  return body;
}
