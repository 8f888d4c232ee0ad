"use strict";
// Draws each chart from its HTML table, and counts down between two refreshes of the page.
// All numbers are those of the server's HTML; the script computes none.
(() => {
  const SERIES = {
    line: { width: 2.5, colour: "--mark", points: { show: true, size: 5 } },
    spent: { width: 2.5, colour: "--mark", points: { show: false } },
    plan: { width: 1.5, colour: "--soft", dash: [6, 5], points: { show: false } },
    limit: { width: 2, colour: "--limit", dash: [2, 4], points: { show: false } },
    middle: { width: 1.25, colour: "--soft", dash: [6, 5], points: { show: false } },
    edge: { width: 0, colour: "--soft", points: { show: false } },
    dots: { width: 0, colour: "--mark", points: { show: true, size: 5, filled: true } },
  };
  const drawn = new Map();

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function columns(table) {
    const all = [...table.tHead.rows[0].cells];
    const heads = all.filter((head) => head.dataset.kind !== "hidden");
    const rows = [...table.tBodies[0].rows];
    const cells = heads.map((head) => rows.map((row) => row.cells[head.cellIndex]));
    const data = cells.map((column) =>
      column.map(({ dataset }) => (dataset.value ? Number(dataset.value) : null)),
    );
    const texts = cells.map((column) => column.map((cell) => cell.textContent));
    return { heads, data, texts };
  }

  // The legend shows the text of the table's cell, which the server has rounded (ε up).
  function hovered(figure, column) {
    return (_plot, _value, _series, row) =>
      row === null || row === undefined ? "–" : drawn.get(figure.id)?.texts[column][row] ?? "–";
  }

  function series(figure, head, column) {
    const kind = SERIES[head.dataset.kind];
    const stroke = colour(kind.colour);
    return {
      label: head.textContent.trim(),
      stroke,
      width: kind.width,
      dash: kind.dash,
      spanGaps: true,
      points: {
        show: kind.points.show,
        size: kind.points.size,
        stroke,
        fill: kind.points.filled ? stroke : colour("--card"),
      },
      value: hovered(figure, column),
    };
  }

  function markers(heads) {
    const kind = (i) => SERIES[heads[i].dataset.kind];
    return {
      width: 2,
      dash: (_, i) => (kind(i).dash ? (kind(i).dash[0] < 4 ? "dotted" : "dashed") : "solid"),
      fill: (_, i) =>
        heads[i].dataset.kind === "edge"
          ? colour("--band")
          : kind(i).dash ? "transparent" : colour(kind(i).colour),
      stroke: (_, i) => (heads[i].dataset.kind === "edge" ? "transparent" : colour(kind(i).colour)),
    };
  }

  function axes(figure) {
    const common = {
      stroke: colour("--soft"),
      grid: { stroke: colour("--line"), width: 1 },
      ticks: { stroke: colour("--line"), width: 1 },
      font: "12px system-ui, sans-serif",
      labelFont: "12px system-ui, sans-serif",
      labelSize: 20,
    };
    const whole = (values) => values.map((v) => (Number.isInteger(v) ? v.toLocaleString("en") : ""));
    const up = figure.dataset.percent ? (_, vs) => vs.map((v) => `${Math.round(v * 100)} %`) : undefined;
    return [
      { ...common, label: figure.dataset.x, size: 32, values: (_, vs) => whole(vs) },
      { ...common, label: figure.dataset.y, size: 58, ...(up ? { values: up } : {}) },
    ];
  }

  function range(figure, data) {
    if (figure.dataset.percent) return [0, 1];
    const values = data.slice(1).flat().filter((v) => v !== null);
    const most = Math.max(0, ...values);
    const least = figure.dataset.zoom ? Math.max(0, Math.min(...values) * 0.9) : 0;
    return [least, most > 0 ? most * 1.05 : 1];
  }

  function draw(figure) {
    const place = figure.querySelector(".plot");
    const table = figure.querySelector("table.numbers");
    if (!place || !table || typeof uPlot === "undefined") return;
    const { heads, data, texts } = columns(table);
    if (data[0].length === 0) return;
    const key = figure.id;
    const width = Math.max(220, place.clientWidth);
    const old = drawn.get(key);
    if (old && old.root.parentNode === place) {
      const same = JSON.stringify(old.last) === JSON.stringify(data);
      if (!same) {
        Object.assign(old, { last: data, texts });
        old.plot.setData(data);
      }
      return;
    }
    const kinds = heads.map((head) => head.dataset.kind);
    const edges = kinds.flatMap((kind, i) => (kind === "edge" ? [i] : []));
    const steps = Number(figure.dataset.steps);
    const plot = new uPlot(
      {
        width,
        height: Number(figure.dataset.height || 240),
        scales: {
          x: { time: false, range: () => [0, Math.max(1, steps)] },
          y: { range: (u) => range(figure, u.data) },
        },
        axes: axes(figure),
        series: [
          { label: heads[0].textContent.trim(), value: hovered(figure, 0) },
          ...heads.slice(1).map((head, i) => series(figure, head, i + 1)),
        ],
        bands: edges.length === 2 ? [{ series: [edges[1], edges[0]], fill: colour("--band") }] : [],
        cursor: { drag: { x: false, y: false }, points: { size: 7 } },
        legend: { live: true, markers: markers(heads) },
      },
      data,
      place,
    );
    plot.root.querySelector("canvas").setAttribute("aria-hidden", "true");
    drawn.set(key, { plot, root: plot.root, last: data, texts });
  }

  function drawAll() {
    document.querySelectorAll("figure.chart").forEach(draw);
  }

  function redrawAll() {
    drawn.forEach(({ plot }) => plot.destroy());
    drawn.clear();
    drawAll();
  }

  function resize() {
    drawn.forEach(({ plot, root }) => {
      const width = Math.max(220, root.parentNode.clientWidth);
      if (width !== plot.width) plot.setSize({ width, height: plot.height });
    });
  }

  // -- the countdown and the state of the connection ----------------------------------------

  let received = performance.now();

  function inWords(seconds) {
    const s = Math.max(0, Math.round(seconds));
    if (s < 120) return `${s} s`;
    if (s < 7200) return `${Math.round(s / 60)} min`;
    return `${Math.round(s / 3600)} h`;
  }

  function tick() {
    const elapsed = (performance.now() - received) / 1000;
    document.querySelectorAll("[data-seconds]").forEach((place) => {
      place.textContent = inWords(Number(place.dataset.seconds) - elapsed);
    });
  }

  function connection(well) {
    const note = document.getElementById("connection");
    if (note) note.hidden = well;
  }

  document.addEventListener("htmx:after:swap", (event) => {
    if (event.detail.ctx.response.status >= 400) return; // nothing was swapped
    received = performance.now();
    connection(true);
    drawAll();
    tick();
  });
  document.addEventListener("htmx:error", () => connection(false));
  document.addEventListener("htmx:response:error", () => connection(false));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
  addEventListener("resize", resize);
  drawAll();
  setInterval(tick, 1000);
})();
