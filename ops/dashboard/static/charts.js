// Graphs of the history, drawn by uPlot. Null is no data: a gap, never zero.

const EVERY_MS = 15000;
const HEIGHT = 150;
const STEPS = { m: 60, h: 3600 };
const BREAKER = ["closed", "half open", "open"];
const plots = new Map();
const dark = matchMedia("(prefers-color-scheme: dark)");

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const seconds = (step) => Number.parseInt(step, 10) * STEPS[step.at(-1)];

function span(value) {
  if (value == null) return "–";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${Number(value.toFixed(1))} s`;
  return value < 3600 ? `${Math.round(value / 60)} min` : `${Number((value / 3600).toFixed(1))} h`;
}

const count = (value) => (value == null ? "–" : value.toLocaleString("en", { notation: value >= 1e5 ? "compact" : "standard" }));
const UNITS = { seconds: span, count, breaker: (value) => (value == null ? "–" : BREAKER[value] ?? "") };

const label = (name) => {
  const [whole, part] = name.split(":");
  return (part ?? whole).replace(/^(latency|lag)_/, "").replaceAll("_", " ");
};

function wanted(patterns, series) {
  return patterns.split(" ").flatMap((pattern) => {
    const names = pattern.endsWith("*") ? Object.keys(series).filter((name) => name.startsWith(pattern.slice(0, -1))) : [pattern];
    return names.filter((name) => series[name]?.some((value) => value !== null));
  });
}

function times(history) {
  const since = Date.parse(history.since) / 1000;
  const step = seconds(history.step);
  return Object.values(history.series)[0]?.map((_, n) => since + n * step) ?? [];
}

function replace(place, options, data) {
  plots.get(place)?.destroy();
  place.replaceChildren();
  plots.set(place, new uPlot({ width: place.clientWidth || 300, ...options }, data, place));
}

function draw(figure, history) {
  const place = figure.querySelector(".plot");
  const names = wanted(figure.dataset.series, history.series);
  if (!names.length) {
    plots.get(place)?.destroy();
    plots.delete(place);
    const none = document.createElement("p");
    none.className = "none";
    none.textContent = "no data";
    place.replaceChildren(none);
    return;
  }
  const unit = figure.dataset.unit;
  const tell = UNITS[unit];
  const axis = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  const stepped = unit === "breaker" ? { paths: uPlot.paths.stepped({ align: 1 }) } : {};
  replace(
    place,
    {
      height: HEIGHT,
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
      scales: { y: { range: (_, low, high) => (unit === "breaker" ? [0, 2] : [0, high > 0 ? high * 1.1 : 1]) } },
      axes: [
        { ...axis, size: 26, space: 60, values: "{HH}:{mm}" },
        {
          ...axis,
          size: unit === "breaker" ? 66 : 52,
          splits: unit === "breaker" ? () => [0, 1, 2] : undefined,
          incrs: unit === "count" ? [1, 2, 5].flatMap((n) => [...Array(12).keys()].map((e) => n * 10 ** e)).sort((a, b) => a - b) : undefined,
          values: (_, splits) => splits.map(tell),
        },
      ],
      series: [
        { label: "at", value: "{YYYY}-{MM}-{DD} {HH}:{mm}" },
        ...names.map((name, n) => ({ label: label(name), stroke: colour(`c${n % 8}`), width: 1.5, value: (_, value) => tell(value), points: { show: false }, ...stepped })),
      ],
      cursor: { y: false, points: { size: 6 } },
    },
    [times(history), ...names.map((name) => history.series[name])],
  );
}

async function ask(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(answer.statusText);
  return answer.json();
}

function drawSparks(history) {
  const at = times(history);
  for (const place of document.querySelectorAll("[data-spark]")) {
    const values = history.series[place.dataset.spark];
    if (!values?.some((value) => value !== null)) continue;
    place.title = `Backlog of the last hour: at most ${count(Math.max(...values))}`;
    replace(
      place,
      {
        width: 110,
        height: 24,
        padding: [2, 0, 2, 0],
        legend: { show: false },
        cursor: { show: false },
        axes: [{ show: false }, { show: false }],
        scales: { y: { range: (_, low, high) => [0, Math.max(high, 1)] } },
        series: [{}, { stroke: colour("c0"), fill: colour("wash"), width: 1, points: { show: false } }],
      },
      [at, values],
    );
  }
}

async function round() {
  if (document.hidden) return;
  for (const box of document.querySelectorAll("[data-history]")) {
    const history = await ask(box.dataset.history);
    for (const figure of box.querySelectorAll(".chart")) draw(figure, history);
  }
  const sparks = document.querySelector("[data-sparks]");
  if (sparks) drawSparks(await ask(sparks.dataset.sparks));
}

async function again() {
  await round().catch(() => {}); // the next round tries again, and the page says itself when answers are late
  setTimeout(again, EVERY_MS);
}

const widths = new ResizeObserver((changes) => {
  for (const { target } of changes) plots.get(target)?.setSize({ width: target.clientWidth, height: HEIGHT });
});
for (const place of document.querySelectorAll(".plot")) widths.observe(place);
dark.addEventListener("change", () => round().catch(() => {}));
if (document.querySelector("[data-history], [data-sparks]")) again();
