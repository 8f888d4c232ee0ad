// A client's update, from parameters and records alone; in float64 throughout.

import { requireThat } from "./protocol.mjs";

const FILTERS = { "tanh-cnn-13k-1": 16, "tanh-cnn-26k-1": 32 };

const product = (numbers) => numbers.reduce((all, number) => all * number, 1);

// -- features -----------------------------------------------------------------------------------

// The nearest binary16, ties to even, as a number.
export function toHalf(x) {
  if (!Number.isFinite(x) || x === 0) return x;
  const exponent = Math.max(-14, Math.floor(Math.log2(Math.abs(x))));
  const unit = 2 ** (exponent - 10);
  const whole = Math.floor(x / unit);
  const rest = x / unit - whole;
  const up = rest > 0.5 || (rest === 0.5 && whole % 2 !== 0);
  const rounded = (whole + (up ? 1 : 0)) * unit;
  return Math.abs(rounded) > 65504 ? Math.sign(rounded) * Infinity : rounded;
}

export function featuresOf(format, input) {
  if (format === "pixels-1") return input;
  const mean = input.reduce((sum, x) => sum + x, 0) / input.length;
  const variance = input.reduce((sum, x) => sum + (x - mean) ** 2, 0) / input.length;
  return Float64Array.from(input, (x) => toHalf((x - mean) / Math.sqrt(variance + 1e-5)));
}

// -- layers: each has its size, and forward gives the output and a way back ---------------------

function dense(inputs, outputs) {
  const size = outputs * (inputs + 1);
  const forward = (p, x) => {
    const y = new Float64Array(outputs);
    for (let j = 0; j < outputs; j += 1) {
      let z = p[outputs * inputs + j];
      for (let i = 0; i < inputs; i += 1) z += p[j * inputs + i] * x[i];
      y[j] = z;
    }
    const back = (up, gradient) => {
      const down = new Float64Array(inputs);
      for (let j = 0; j < outputs; j += 1) {
        for (let i = 0; i < inputs; i += 1) {
          gradient[j * inputs + i] += up[j] * x[i];
          down[i] += up[j] * p[j * inputs + i];
        }
        gradient[outputs * inputs + j] += up[j];
      }
      return down;
    };
    return { y, back };
  };
  return { size, forward };
}

function convolution([height, width, channels], filters, side, stride, padding) {
  const rows = Math.floor((height + 2 * padding - side) / stride) + 1;
  const columns = Math.floor((width + 2 * padding - side) / stride) + 1;
  const patch = side * side * channels;
  requireThat(rows > 0 && columns > 0, "images too small for this network");
  // Calls visit(output, weight, input) for every product; inputs on the padding are 0.
  const everyProduct = (visit) => {
    for (let r = 0; r < rows; r += 1) {
      for (let c = 0; c < columns; c += 1) {
        for (let i = 0; i < side; i += 1) {
          const y = stride * r + i - padding;
          if (y < 0 || y >= height) continue;
          for (let l = 0; l < side; l += 1) {
            const x = stride * c + l - padding;
            if (x < 0 || x >= width) continue;
            for (let h = 0; h < channels; h += 1) {
              const from = (y * width + x) * channels + h;
              const weight = (i * side + l) * channels + h;
              visit((r * columns + c) * filters, weight, from);
            }
          }
        }
      }
    }
  };
  const forward = (p, x) => {
    const y = new Float64Array(rows * columns * filters);
    y.forEach((_, at) => (y[at] = p[filters * patch + (at % filters)]));
    everyProduct((out, weight, from) => {
      for (let j = 0; j < filters; j += 1) y[out + j] += p[j * patch + weight] * x[from];
    });
    const back = (up, gradient) => {
      const down = new Float64Array(height * width * channels);
      everyProduct((out, weight, from) => {
        for (let j = 0; j < filters; j += 1) {
          gradient[j * patch + weight] += up[out + j] * x[from];
          down[from] += up[out + j] * p[j * patch + weight];
        }
      });
      up.forEach((u, at) => (gradient[filters * patch + (at % filters)] += u));
      return down;
    };
    return { y, back };
  };
  return { size: filters * (patch + 1), shape: [rows, columns, filters], forward };
}

function pooling([height, width, channels]) {
  requireThat(height > 1 && width > 1, "images too small for this network");
  const shape = [height - 1, width - 1, channels];
  const forward = (_, x) => {
    const y = new Float64Array(product(shape));
    const from = new Int32Array(y.length);
    for (let at = 0; at < y.length; at += 1) {
      const row = Math.floor(at / (shape[1] * channels));
      const first = at + row * channels; // one column fewer in each row above
      const four = [0, channels, width * channels, (width + 1) * channels];
      let best = first;
      for (const offset of four) if (x[first + offset] > x[best]) best = first + offset;
      from[at] = best;
      y[at] = x[best];
    }
    const back = (up) => {
      const down = new Float64Array(x.length);
      up.forEach((u, at) => (down[from[at]] += u));
      return down;
    };
    return { y, back };
  };
  return { size: 0, shape, forward };
}

const tanh = {
  size: 0,
  forward: (_, x) => {
    const y = x.map(Math.tanh);
    return { y, back: (up) => up.map((u, i) => u * (1 - y[i] * y[i])) };
  },
};

function layersOf(model) {
  const { architecture, features } = model;
  const shape = features.input_shape;
  requireThat(shape.length > 0 && shape.every((side) => side >= 1), "no such input_shape");
  const k = architecture.classes;
  if (architecture.format === "logistic-1") return [dense(product(shape), k)];
  requireThat(shape.length === 2 || shape.length === 3, "the network takes images");
  const first = convolution([...shape, 1].slice(0, 3), 16, 8, 2, 3);
  const pooled = pooling(first.shape);
  const second = convolution(pooled.shape, FILTERS[architecture.format], 4, 2, 0);
  const again = pooling(second.shape);
  const hidden = dense(product(again.shape), 32);
  return [first, pooled, tanh, second, again, tanh, hidden, tanh, dense(32, k)];
}

export const dimensionOf = (model) => layersOf(model).reduce((sum, { size }) => sum + size, 0);

// -- the update ---------------------------------------------------------------------------------

// Gradient of the mean loss over some records, each { features, label }.
function gradientOf(layers, parameters, records) {
  const gradient = new Float64Array(parameters.length);
  for (const { features, label } of records) {
    let values = features;
    let place = 0;
    const ways = layers.map((layer) => {
      const part = [place, (place += layer.size)];
      const { y, back } = layer.forward(parameters.subarray(...part), values);
      values = y;
      return { back, part };
    });
    const largest = Math.max(...values);
    const powers = values.map((z) => Math.exp(z - largest));
    const total = powers.reduce((sum, power) => sum + power, 0);
    let up = powers.map((power, c) => (power / total - (c === label ? 1 : 0)) / records.length);
    for (const { back, part } of ways.reverse()) up = back(up, gradient.subarray(...part));
  }
  return gradient;
}

// The unclipped update. `records` are { input: numbers, label }, `client` and `model` as in plain
// JSON of the charter.
export function movedBy(model, client, parameters, records) {
  const layers = layersOf(model);
  const moved = new Float64Array(parameters.length);
  if (records.length === 0) return moved;
  const seen = records.map(({ input, label }) => ({
    features: featuresOf(model.features.format, Float64Array.from(input)),
    label,
  }));
  for (let step = 0; step < client.steps; step += 1) {
    const at = Float64Array.from(parameters, (value, i) => value - moved[i]);
    gradientOf(layers, at, seen).forEach((g, i) => (moved[i] += client.learning_rate * g));
  }
  return moved;
}

export const normOf = (x) => Math.sqrt(x.reduce((sum, value) => sum + value * value, 0));

// At most norm C; the zero vector where there is no norm.
export function clipped(moved, clip) {
  const norm = normOf(moved);
  if (!(norm <= 1e30)) return new Float64Array(moved.length);
  const factor = norm > 0 ? Math.min(1, (clip * (1 - 2 ** -20)) / norm) : 1;
  return moved.map((value) => value * factor);
}

// floor((C / step)²), exactly: both are whole numbers times a power of two.
export function normSquaredLimit(clip, step) {
  const [c, s] = [clip, step].map((value) => {
    let exponent = 0;
    let mantissa = value;
    while (!Number.isInteger(mantissa)) {
      mantissa *= 2;
      exponent -= 1;
    }
    return { mantissa: BigInt(mantissa), exponent };
  });
  const shift = BigInt(2 * Math.abs(c.exponent - s.exponent));
  const [over, under] = [c.mantissa ** 2n, s.mantissa ** 2n];
  return c.exponent >= s.exponent ? (over << shift) / under : over / (under << shift);
}

const squared = (q) => q.reduce((sum, value) => sum + BigInt(value) ** 2n, 0n);

// Whole numbers of the lattice, whose norm is within the limit exactly.
export function quantised(update, clip, step) {
  const limit = normSquaredLimit(clip, step);
  let q = Array.from(update, (value) => Math.trunc(value / step) + 0);
  for (let exact = squared(q); exact > limit; exact = squared(q)) {
    const factor = Math.sqrt(Number(limit) / Number(exact)) * (1 - 2 ** -40);
    q = q.map((value) => Math.trunc(value * factor) + 0);
  }
  return q;
}

export function encoded(q) {
  const body = Buffer.alloc(4 * q.length);
  q.forEach((value, i) => body.writeInt32LE(value, 4 * i));
  return body;
}

// The bytes that are sent, for the parameters of a step.
export function updateBody(terms, parameters, records) {
  const { clip_norm: clip, step } = terms.messages.update;
  const moved = movedBy(terms.model, terms.client, parameters, records);
  return encoded(quantised(clipped(moved, clip), clip, step));
}

export function parametersOf(bytes) {
  return Float64Array.from({ length: bytes.length / 4 }, (_, i) => bytes.readFloatLE(4 * i));
}
