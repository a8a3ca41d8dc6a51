"use strict";
// The page of a run. It keeps the last minute of rows and nothing else; missed messages are not requested again.
const KEEP = 600, EVERY_MS = 5000, GIVE_UP_MS = 30000;
const $ = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let facts = null, final = "", lostSince = 0, rows = [], status = {}, chosen = "", table = { sort: "nmsre", descending: true, offset: 0 };
const plots = {};

async function get(path) {
  if (final) throw new Error(final);
  const answer = await fetch(path), told = await answer.json();
  if (!answer.ok) throw new Error(told.error || answer.statusText);
  return told;
}

// Return a name as nodes: a line may end after each "/" and "_".
function breakable(name) {
  return name.split(/(?<=[/_])/).flatMap((part) => [part, document.createElement("wbr")]);
}

function fail(error) { if (!lostSince) say("notice", error.message); }
function say(id, text) { if ($(id).textContent !== text) $(id).replaceChildren(...breakable(text)); }

function canvas(id) {
  const c = typeof id === "string" ? $(id) : id, scale = window.devicePixelRatio || 1;
  const w = Math.round(c.clientWidth * scale), h = Math.round(c.clientHeight * scale);
  if (c.width !== w || c.height !== h) { c.width = w; c.height = h; }
  const g = c.getContext("2d");
  g.setTransform(scale, 0, 0, scale, 0, 0);
  g.clearRect(0, 0, c.clientWidth, c.clientHeight);
  return [g, c.clientWidth, c.clientHeight];
}

// ---- pen: world metres to pixels, y up -------------------------------------------------------------------------------
function hasPen() {
  const { walls = [], outline = [] } = facts.picture || {};
  return walls.length > 0 || outline.length > 0 || rows.some((row) => row.pose);
}
function drawPen() {
  $("pen-section").hidden = !hasPen();
  if ($("pen-section").hidden) return;
  const [g, w, h] = canvas("pen"), picture = facts.picture || {}, walls = picture.walls || [];
  const last = rows[rows.length - 1];
  const size = Math.max(1.08, ...walls.flat().map((v) => 1.08 * Math.abs(v))), unit = Math.min(w, h) / (2 * size);
  const at = (x, y) => [w / 2 + unit * x, h / 2 - unit * y];
  g.lineCap = "round"; g.strokeStyle = css("--ink"); g.lineWidth = 3;
  const pose = last && last.pose;
  if (pose) for (const [x0, y0, x1, y1] of walls) { g.beginPath(); g.moveTo(...at(x0, y0)); g.lineTo(...at(x1, y1)); g.stroke(); }
  const path = rows.filter((r) => r.pose);
  g.lineWidth = 2;
  for (let k = 1; k < path.length; k++) {
    const [ax, ay] = path[k - 1].pose, [bx, by] = path[k].pose;
    if (Math.hypot(ax - bx, ay - by) > .4) continue;
    g.globalAlpha = .1 + .7 * k / path.length; g.strokeStyle = css("--one");
    g.beginPath(); g.moveTo(...at(ax, ay)); g.lineTo(...at(bx, by)); g.stroke();
  }
  g.globalAlpha = 1;
  if (!last) return;
  const [x, y, heading] = pose || [0, 0, Math.PI / 2], c = Math.cos(heading), s = Math.sin(heading);
  const body = (u, v) => at(x + c * u - s * v, y + s * u + c * v);
  for (const [u, v, angle, channel] of picture.rays || []) {
    const seen = last.values[channel];
    if (seen === null) continue;
    const length = .06 + .5 * (1 - seen);  // a strong reflection is a near wall
    g.strokeStyle = css(seen > .3 ? "--two" : "--warn"); g.lineWidth = 1 + 3 * seen; g.globalAlpha = .35 + .65 * seen;
    g.beginPath(); g.moveTo(...body(u, v)); g.lineTo(...body(u + length * Math.cos(angle), v + length * Math.sin(angle))); g.stroke();
  }
  g.globalAlpha = 1;
  const outline = picture.outline && picture.outline.length ? picture.outline : [[.1, 0], [-.08, .07], [-.08, -.07]];
  g.beginPath(); outline.forEach(([u, v], k) => k ? g.lineTo(...body(u, v)) : g.moveTo(...body(u, v))); g.closePath();
  g.fillStyle = css("--good"); g.fill(); g.strokeStyle = css("--ink"); g.lineWidth = 1.5; g.stroke();
  g.beginPath(); g.moveTo(...body(.03, 0)); g.lineTo(...body(.1, 0)); g.stroke();
  const action = facts.actions[last.action], doing = ["behaves", "tests an excursion", "drives to the centre", "has ended", "docks"][last.phase] || "";
  say("pen-said", `${doing}${action ? ": " + action.replaceAll("_", " ") : ""}` +
    (pose ? ` · x ${pose[0].toFixed(2)} m, y ${pose[1].toFixed(2)} m` : " · no pose is known: the robot and what its sensors see"));
}

// ---- health ----------------------------------------------------------------------------------------------------------
function discardedFacts(s) {
  if (!s.n_discarded) return [];
  const reasons = Object.entries(s.discarded_by || {}).map(([reason, n]) => `${formatCount(n)} by ${reason}`);
  return [["discarded excursions", [formatCount(s.n_discarded), ...reasons].join(" · "), true]];
}
function missingFacts(s) {
  const lost = (s.missing || []).map(one => one.channel + (one.since_step == null ? "" : ", none since step " + formatCount(one.since_step)));
  return lost.length ? [["missing readings", lost.join(" · "), true]] : [];
}
function timeName() { return facts.time_name ?? "robot time"; }
function drawHealth() {
  const s = status, cycle = s.cycle_ms || {}, disk = s.disk || {}, total = facts.total_steps;
  const share = s.share_nmsre_below_1;
  const facts_ = [
    ["better than the mean", share == null ? "–" : formatPercent(share)],
    ["median NMSRE", formatNumber(s.median_nmsre)], ["mean NMSRE", formatNumber(s.mean_nmsre)],
    ["cycle p50", cycle.p50 == null ? "–" : formatNumber(cycle.p50) + " ms"], ["cycle p99", cycle.p99 == null ? "–" : formatNumber(cycle.p99) + " ms"],
    ["deadlines missed", formatCount(s.deadlines_missed), s.deadlines_missed > 0], ["gaps", formatCount(s.gaps), s.gaps > 0],
    ["CRC errors", formatCount(s.crc_errors), s.crc_errors > 0], ["link losses", formatCount(s.link_losses), s.link_losses > 0],
    ["learning steps", formatCount(s.learning_steps)], ["test excursions", formatCount(s.n_excursions)],
    ...discardedFacts(s), ...missingFacts(s),
    ["diverged", formatCount(s.n_diverged) + " of " + formatCount(facts.n_questions), s.n_diverged > 0],
    ["run on disk", disk.run == null ? "–" : formatBytes(disk.run)], ["disk free", disk.free == null ? "–" : formatBytes(disk.free), disk.free < 1e9],
    ["snapshots", formatCount(s.snapshots)],
    ...(s.reward ? [["mean reward", formatNumber(s.reward)]] : []),
  ];
  const list = $("health");
  if (list.children.length !== facts_.length) {
    list.replaceChildren(...facts_.map(() => { const d = document.createElement("div"); d.append(document.createElement("dt"), document.createElement("dd")); return d; }));
  }
  facts_.forEach(([name, value, bad], k) => {
    const [dt, dd] = list.children[k].children;
    if (dt.textContent !== name) dt.textContent = name;
    if (dd.textContent !== value) dd.textContent = value;
    dd.classList.toggle("warn", Boolean(bad));
  });
  if (!lostSince) {
    say("state", s.state === "silent" ? `silent for ${Math.round(s.silent_s)} s` : s.state); $("state").className = "badge " + s.state;
    say("notice", final || (s.state === "dead" ? "The life's process has ended without its summary: `horde resume` continues it." : ""));
  }
  const t = s.t == null || !timeName() ? "" : ` · ${timeName()} ${Math.floor(s.t / 3600)} h ${String(Math.floor(s.t / 60) % 60).padStart(2, "0")} min ${String(Math.floor(s.t % 60)).padStart(2, "0")} s`;
  say("headline", `step ${formatCount(s.step)}${total ? " of " + formatCount(total) : ""}${t} · ${formatCount(facts.n_questions)} questions`);
  $("stop").disabled = Boolean(final) || !s.can_stop;
  if ($("stop").disabled) unsure();
}

// ---- shards, if there are any ---------------------------------------------------------------------------------------
function drawShards() {
  const shards = status.shards || [];
  $("shards").hidden = !shards.length;
  if (!shards.length) return;
  const body = $("shard-rows");
  while (body.children.length > shards.length) body.lastChild.remove();
  while (body.children.length < shards.length) {
    const tr = document.createElement("tr");
    for (let k = 0; k < 6; k++) tr.append(document.createElement("td"));
    body.append(tr);
  }
  shards.forEach((shard, k) => {
    const cells_ = [shard.number, shard.node || "–", formatCount(shard.n_demons), formatCount(shard.lag),
      shard.n_bytes ? formatBytes(shard.n_bytes) : "–", shard.state + (shard.why ? ": " + shard.why : "")];
    cells_.forEach((text, j) => { const td = body.children[k].children[j]; if (td.textContent !== String(text)) td.textContent = text; });
    body.children[k].classList.toggle("warn", shard.state !== "learning");
  });
  const behind = Math.max(...shards.map((shard) => shard.lag || 0)), away = shards.filter((shard) => shard.state !== "learning").length;
  say("shards-said", `${formatCount(shards.length)} shards · at most ${formatCount(behind)} steps behind` + (away ? ` · ${formatCount(away)} not learning` : ""));
}

// ---- channels --------------------------------------------------------------------------------------------------------
let cells = [];
function makeChannels() {
  const ranges = (facts.picture || {}).ranges || [];
  cells = facts.channels.map((channel, k) => {
    const div = document.createElement("div"), c = document.createElement("canvas"), p = document.createElement("p");
    const name = document.createElement("span"), value = document.createElement("span");
    div.className = "channel"; name.textContent = channel.name.replaceAll("_", " "); name.title = channel.name;
    c.setAttribute("role", "img"); c.setAttribute("aria-label", channel.name + ", the last minute");
    p.append(name, value); div.append(p, c);
    return { div, c, value, unit: channel.unit, low: (ranges[k] || [])[0], high: (ranges[k] || [])[1] };
  });
  $("channels").replaceChildren(...cells.map((cell) => cell.div));
}
function drawChannels() {
  const box = $("channels").getBoundingClientRect();
  if (box.bottom < 0 || box.top > innerHeight) return;
  const colour = css("--one");
  cells.forEach((cell, k) => {
    const values = rows.map((r) => r.values[k]), known = values.filter((v) => v !== null);
    if (!known.length) return;
    const low = Math.min(...known), high = Math.max(...known), span = Math.max(high - low, .02);
    const [g, w, h] = canvas(cell.c);
    g.strokeStyle = colour; g.lineWidth = 1.3; g.beginPath();
    let up = true;
    values.forEach((v, i) => {
      if (v === null) { up = true; return; }
      const x = w * i / Math.max(values.length - 1, 1), y = h - 3 - (h - 6) * (v - low + (span - high + low) / 2) / span;
      up ? g.moveTo(x, y) : g.lineTo(x, y); up = false;
    });
    g.stroke();
    const now = known[known.length - 1];
    const text = cell.low == null || cell.unit === "1" ? (100 * now).toFixed(1) + " % of scale"
      : formatNumber(cell.low + now * (cell.high - cell.low)) + " " + cell.unit;
    if (cell.value.textContent !== text) cell.value.textContent = text;
  });
}

// ---- charts ----------------------------------------------------------------------------------------------------------
const DECADES = [];
for (let exponent = -12; exponent <= 12; exponent++) DECADES.push(10 ** exponent);

// Return the marks of a logarithmic axis: powers of ten, and between few of them 2 and 5 times these.
function logMarks(low, high) {
  const isShown = (mark) => mark >= low * (1 - 1e-9) && mark <= high * (1 + 1e-9);
  const decades = DECADES.filter(isShown);
  if (decades.length > 2) return decades;
  return DECADES.flatMap((decade) => [decade, 2 * decade, 5 * decade]).filter(isShown);
}

// Draw a chart. `bands` are pairs of numbers of series, the upper one first, between which it is filled.
function chart(id, title, series, data, log = false, bands = []) {
  const place = $(id), width = place.clientWidth || 300;
  const axis = { stroke: css("--muted"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line"), width: 1 } };
  const labels = { values: (_, marks) => formatAxis(marks, false) };
  const logLabels = { values: (_, marks) => formatAxis(marks, true), filter: (_, marks) => marks, splits: (_, __, low, high) => logMarks(low, high) };
  const withValue = (one, before = "") => ({ ...one, value: (_, v) => v === null || v === undefined ? "" : before + formatNumber(v) });
  if (plots[id] && (plots[id].series.length !== series.length || place.dataset.title !== title)) { plots[id].destroy(); delete plots[id]; }
  place.dataset.title = title;
  if (!plots[id]) {
    plots[id] = new uPlot({
      bands: bands.map((pair) => ({ series: pair, fill: css("--band") })),
      title, width, height: 220, series: [withValue({ label: series[0] }, "at "), ...series.slice(1).map((one) => withValue(one))], cursor: { drag: { x: false, y: false } },
      scales: { x: { time: false }, y: log ? { distr: 3 } : {} },
      axes: [{ ...axis, ...labels, label: series[0], labelSize: 18 }, { ...axis, ...(log ? logLabels : labels), size: 66 }],
    }, data, place);
    for (const label of place.querySelectorAll(".u-series:not(:first-child) th")) {  // shows and hides a curve
      label.tabIndex = 0; label.setAttribute("role", "button");
      label.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); label.click(); } });
    }
  } else {
    plots[id].setData(data, true);
    if (plots[id].width !== width) plots[id].setSize({ width, height: 220 });
  }
}
function drawPredictions(id, title, told) {
  const n = told.return.filter((v) => v !== null).length;
  const series = [timeName() ? timeName() + " (s)" : "step", { label: "prediction", stroke: css("--one"), width: 1.6 },
    { label: "return", stroke: css("--two"), width: 1.6, points: { show: n < 200, size: 4 } }];
  const data = [told.t, told.prediction, told.return], bands = [];
  const widths = told.deviation || (told.half_width == null ? null : told.prediction.map(() => told.half_width));
  if (widths) {
    const edge = (sign) => told.prediction.map((v, k) => v === null || widths[k] === null ? null : v + sign * widths[k]);
    const style = { stroke: css("--one"), width: .5, points: { show: false } };
    const name = told.deviation ? "deviation" : "95 %";
    series.push({ label: "+ " + name, ...style }, { label: "− " + name, ...style });
    data.push(edge(1), edge(-1));
    bands.push([3, 4]);
  }
  chart(id, title, series, data, false, bands);
}
async function drawDemon() {
  const name = chosen;
  if (!name) return;
  try {
    const told = await get("api/demon?name=" + encodeURIComponent(name));
    if (name !== chosen) return;
    const n = told.return.filter((v) => v !== null).length;
    say("demon-said", told.why || `${told.name} · NMSRE ${formatNumber(told.nmsre)} · MSPBE ${formatNumber(told.mspbe)}` +
      `${told.diverged ? " · diverged" : ""} · ${formatCount(told.t.length)} predictions, ${formatCount(n)} of the returns known` +
      (told.deviation ? " · band: one learned standard deviation of the return" : "") +
      (told.half_width == null ? "" : ` · ${formatPercent(told.in_band)} of ${formatCount(told.n_bands)} tested returns were in the band of 95 %`));
    drawPredictions("demon", "", told);
  } catch (error) { say("demon-said", error.message); }
}
async function drawCurves() {
  const told = await get("api/curves");
  const positive = (v) => v.map((x) => x !== null && x > 0 ? x : null);
  const tested = told.nmsre[1].some((v) => v > 0) || told.median[1].some((v) => v > 0);
  if (!tested) say("nmsre", "No question was tested twice yet, so there is no NMSRE.");
  else if (!plots.nmsre) say("nmsre", "");
  if (tested) chart("nmsre", "NMSRE (1: no better than the mean)", ["step",
    { label: "median", stroke: css("--one"), width: 1.6, spanGaps: true }, { label: "mean", stroke: css("--two"), width: 1.6, spanGaps: true }],
    uPlot.join([told.median, told.nmsre].map(([steps, values]) => [steps, positive(values)])), true);
  const isEstimated = told.mspbe[1].some((v) => v !== null);
  if (told.mspbe[0].length && !isEstimated) say("mspbe", "There is no estimate of the MSPBE: the update rules have no secondary weights w.");
  else if (isEstimated && !plots.mspbe) say("mspbe", "");
  if (isEstimated) chart("mspbe", "mean estimate of the MSPBE", ["step", { label: "MSPBE", stroke: css("--two"), width: 1.6 }], told.mspbe);
}

// ---- surprise --------------------------------------------------------------------------------------------------------
const MOST_GROUPS = 4;
async function drawSurprise() {
  const told = await get("api/surprise"), isWatched = told.rate !== undefined;
  $("surprise-section").hidden = !isWatched;
  if (!isWatched) return;
  const alarms = told.events.filter((one) => one.name === "surprise"), last = told.events[told.events.length - 1];
  const missing = told.steps_missing ? `${formatCount(told.steps_missing)} more learning steps are needed for a first test` : "no alarm";
  say("surprise-said", `${last ? last.sentence : missing} · at most ${told.rate} without a change`);
  if (!told.step.length) return;
  const shown = (values) => values.map((v) => Math.max(v, .1)), top = (name) => Math.max(...told.evidence_of_groups[name]);
  const groups = Object.keys(told.evidence_of_groups).sort((a, b) => top(b) - top(a)).slice(0, MOST_GROUPS);
  const colours = [css("--one"), css("--two"), css("--good"), css("--warn")];
  const after = (step) => told.step.findIndex((at) => at >= step), marks = told.step.map(() => null);
  for (const alarm of alarms) if (after(alarm.step) >= 0) marks[after(alarm.step)] = told.threshold;
  chart("surprise", "evidence, by groups of sensors", ["step", { label: "mean of all tests", stroke: css("--ink"), width: 2 },
    { label: "alarm at", stroke: css("--muted"), width: 1, dash: [4, 4] }, { label: "alarm", stroke: css("--warn"), width: 0, points: { show: true, size: 10 } },
    ...groups.map((name, k) => ({ label: name, stroke: colours[k], width: 1.2 }))],
    [told.step, shown(told.evidence), told.step.map(() => told.threshold), marks, ...groups.map((name) => shown(told.evidence_of_groups[name]))], true);
  if (alarms.length) await drawAlarm(told.at_the_last_alarm, alarms[alarms.length - 1].questions || []);
}
async function drawAlarm(traces, names) {  // a finished run has what surrounds the alarm, a living one the newest predictions
  if (!traces) {
    for (const [k, name] of names.entries()) {
      const told = await get("api/demon?name=" + encodeURIComponent(name)).catch(() => null);  // a question may be removed
      if (!told || !told.t.length) continue;
      $(`surprise-${k}`).hidden = false;
      drawPredictions(`surprise-${k}`, name, told);
    }
    return;
  }
  for (const [k, one] of traces.entries()) {
    $(`surprise-${k}`).hidden = false;
    chart(`surprise-${k}`, one.question, ["step", { label: "prediction × (1 − γ)", stroke: css("--one"), width: 1.6 },
      { label: "reading", stroke: css("--two"), width: 1.6 }], [one.step, one.prediction, one.reading]);
  }
}

// ---- all questions ---------------------------------------------------------------------------------------------------
// Blue below 1, white at 1, orange above: readable without telling red from green.
const BEST = [5, 80, 150], EQUAL = [247, 247, 247], WORST = [179, 88, 6];
function heat(nmsre) {
  const mix = (from, to, share) => from.map((x, k) => Math.round(x + share * (to[k] - x)));
  const colour = nmsre < 1 ? mix(BEST, EQUAL, nmsre) : mix(EQUAL, WORST, Math.min(Math.log10(nmsre), 1));
  return `rgb(${colour})`;
}
function formatPercent(share) { return Math.round(100 * share) + " %"; }
const LABEL_PX = 12, GAP_PX = 3;

// Place the cells of the map: a block with a name for each family of questions, or one block without.
function layOut(families, n, width) {
  const blocks = families.length ? families : [{ name: "", n }];
  const widest = Math.floor(width / Math.max(...families.map((one) => one.n), 1));
  let size = Math.max(3, Math.min(16, Math.floor(Math.sqrt(width * 300 / Math.max(n, 1)))));
  if (families.length && widest >= 8) size = Math.min(widest, 20);  // each family in one row
  const across = Math.max(1, Math.floor(width / size));
  const label = families.length ? LABEL_PX : 0;
  let first = 0, top = 0;
  const placed = blocks.map((block) => {
    const below = top + (label ? label + GAP_PX : 0), height = Math.ceil(block.n / across) * size;
    const at = { name: block.name, first, n: block.n, top: below };
    first += block.n;
    top = below + height + (label ? GAP_PX : 0);
    return at;
  });
  return { size, across, blocks: placed, n, height: top };
}
function fillCells(g, block) {
  const rest = block.n % grid.across, rows = Math.floor(block.n / grid.across), size = grid.size;
  g.fillRect(0, block.top, grid.across * size, rows * size);
  g.fillRect(0, block.top + rows * size, rest * size, size);
}
function cellAt(k) {
  const block = grid.blocks.find((one) => k < one.first + one.n), within = k - block.first;
  return [(within % grid.across) * grid.size, block.top + Math.floor(within / grid.across) * grid.size];
}
function questionAt(x, y) {
  const column = Math.floor(x / grid.size);
  for (const block of grid.blocks) {
    const row = Math.floor((y - block.top) / grid.size), within = row * grid.across + column;
    if (row >= 0 && column < grid.across && within < block.n) return block.first + within;
  }
  return null;
}
let grid = null, cursor = 0;
async function drawMap() {
  const told = await get("api/heat"), n = told.nmsre.length, c = $("map");
  grid = layOut(told.families, n, c.clientWidth || 300);
  c.style.height = grid.height + "px";
  const [g] = canvas("map"), size = grid.size, inner = size - (size > 5 ? 1 : 0);
  g.font = `${LABEL_PX}px system-ui, sans-serif`; g.textBaseline = "bottom"; g.fillStyle = css("--muted");
  for (const block of grid.blocks) g.fillText(block.name, 0, block.top - 1);
  g.fillStyle = css("--line");  // between the cells, of which some are white
  for (const block of grid.blocks) fillCells(g, block);
  told.nmsre.forEach((v, k) => {
    const [x, y] = cellAt(k), isDiverged = told.diverged[k] === 1;
    g.fillStyle = isDiverged ? "#000" : v === null ? "#8f9aa6" : heat(v);
    g.fillRect(x, y, inner, inner);
  });
  sayMap(told.nmsre);
  if (document.activeElement !== c || !n) return;
  g.strokeStyle = css("--ink"); g.lineWidth = 2;
  g.strokeRect(...cellAt(cursor), size, size);
}
function sayMap(nmsre) {
  const known = nmsre.filter((v) => v !== null), n = known.length;
  if (!n) { say("map-said", `${formatCount(nmsre.length)} questions, none tested twice yet`); return; }
  const share = known.filter((v) => v < 1).length / n;
  say("map-said", `${formatPercent(share)} of ${formatCount(n)} tested questions are better than the mean (NMSRE below 1)` +
    (n < nmsre.length ? `; ${formatCount(nmsre.length - n)} are not tested twice yet` : ""));
}
async function rowAt(k) {
  const reply = await get(`api/demons?index=${k}`);
  return reply.rows[0];
}
async function nameAt(k) { return (await rowAt(k)).name; }
async function describe(k) {
  const row = await rowAt(k);
  return row.name + (row.diverged ? " · diverged" : row.nmsre === null ? " · not tested twice" : ` · NMSRE ${formatNumber(row.nmsre)}`);
}
let tableAsked = 0;
async function drawTable() {
  const mine = ++tableAsked, { sort, descending, offset } = table;
  const told = await get(`api/demons?sort=${sort}&descending=${descending ? 1 : 0}&offset=${offset}&limit=50`);
  if (mine !== tableAsked) return;  // another order or page was asked for meanwhile
  const focused = $("demons").contains(document.activeElement) ? document.activeElement.textContent : null;
  $("demons").replaceChildren(...told.rows.map((row) => {
    const tr = document.createElement("tr"), pick = document.createElement("button");
    pick.type = "button"; pick.append(...breakable(row.name)); pick.addEventListener("click", () => choose(row.name, true));
    for (const content of [pick, formatNumber(row.nmsre), formatNumber(row.mspbe), row.diverged ? "yes" : ""]) {
      const td = document.createElement("td"); td.append(content); tr.append(td);
    }
    return tr;
  }));
  for (const pick of $("demons").querySelectorAll("button")) if (pick.textContent === focused) pick.focus({ preventScroll: true });
  say("place", `${formatCount(told.n_found ? offset + 1 : 0)} to ${formatCount(offset + told.rows.length)} of ${formatCount(told.n_found)}`);
  $("back").disabled = offset === 0; $("on").disabled = offset + told.rows.length >= told.n_found;
}
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const sort = button.dataset.sort;
    table = { sort, descending: table.sort === sort ? !table.descending : sort !== "name", offset: 0 };
    for (const th of document.querySelectorAll("th")) th.removeAttribute("aria-sort");
    button.parentElement.setAttribute("aria-sort", table.descending ? "descending" : "ascending");
    drawTable().catch(fail);
  });
}
$("back").addEventListener("click", () => { table.offset = Math.max(0, table.offset - 50); drawTable().catch(fail); });
$("on").addEventListener("click", () => { table.offset += 50; drawTable().catch(fail); });
$("map").addEventListener("click", async (event) => {
  const k = grid ? questionAt(event.offsetX, event.offsetY) : null;
  if (k !== null) nameAt(k).then((name) => name && choose(name, true)).catch(fail);
});
let pointed = null;
$("map").addEventListener("mousemove", (event) => {
  const k = grid ? questionAt(event.offsetX, event.offsetY) : null;
  if (k === pointed) return;
  pointed = k;
  if (k === null) say("map-at", "");
  else describe(k).then((text) => { if (k === pointed) say("map-at", text); }).catch(fail);
});
$("map").addEventListener("mouseleave", () => { pointed = null; say("map-at", ""); });
$("map").addEventListener("keydown", (event) => {
  const moves = grid ? { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -grid.across, ArrowDown: grid.across, Enter: 0 } : {};
  if (!(event.key in moves) || !grid.n) return;
  event.preventDefault();
  cursor = Math.min(Math.max(cursor + moves[event.key], 0), grid.n - 1);
  const at = cursor;
  if (event.key === "Enter") nameAt(at).then((name) => choose(name, true)).catch(fail);
  else describe(at).then((text) => { if (at === cursor) say("map-at", text); }).catch(fail);
  drawMap().catch(fail);
});
for (const change of ["focus", "blur"]) $("map").addEventListener(change, () => drawMap().catch(fail));

// ---- picking a question by typing its name ---------------------------------------------------------------------------
let options = [], active = -1, asked = 0;
function choose(name, scroll = false) {
  chosen = name; $("find").value = name; hide();
  if (plots.demon) { plots.demon.destroy(); delete plots.demon; }
  drawDemon();
  if (scroll) $("demon-title").scrollIntoView({ block: "center" });
}
function chooseFirst(name) {  // leaves the field alone if somebody already types there
  if (document.activeElement !== $("find") && !$("find").value) { choose(name); return; }
  chosen = name;
  drawDemon().catch(fail);
}
function hide() { $("found").hidden = true; $("find").setAttribute("aria-expanded", "false"); $("find").removeAttribute("aria-activedescendant"); active = -1; }
function mark(k) {
  active = k;
  [...$("found").children].forEach((li, i) => li.setAttribute("aria-selected", String(i === k)));
  if (k >= 0) { $("found").children[k].scrollIntoView({ block: "nearest" }); $("find").setAttribute("aria-activedescendant", "found-" + k); }
}
async function search() {
  const mine = ++asked, text = $("find").value;
  const told = await get("api/demons?sort=name&limit=30&find=" + encodeURIComponent(text));
  if (mine !== asked) return;
  options = told.rows.map((row) => row.name);
  $("found").replaceChildren(...options.map((name, k) => {
    const li = document.createElement("li"); li.id = "found-" + k; li.role = "option"; li.append(...breakable(name));
    li.setAttribute("aria-selected", "false"); li.addEventListener("mousedown", (e) => { e.preventDefault(); choose(name); });
    return li;
  }));
  $("found").hidden = !options.length; $("find").setAttribute("aria-expanded", String(options.length > 0)); active = -1;
  say("demon-said", options.length ? `${formatCount(told.n_found)} questions found` : `no question holds ${JSON.stringify(text)}`);
}
async function pick() {  // the marked question, the one whose name was typed, or the first one found: never an unknown name
  if (active < 0 || $("found").hidden) await search();
  const typed = $("find").value.trim(), name = active >= 0 ? options[active] : options.includes(typed) ? typed : options[0];
  if (name !== undefined) choose(name);
}
$("find").addEventListener("input", () => search().catch(fail));
$("find").addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" && options.length) { event.preventDefault(); mark(Math.min(active + 1, options.length - 1)); }
  else if (event.key === "ArrowUp" && options.length) { event.preventDefault(); mark(Math.max(active - 1, 0)); }
  else if (event.key === "Escape") hide();
  else if (event.key === "Enter") { event.preventDefault(); pick().catch(fail); }
});
$("find").addEventListener("blur", hide);

// ---- the only control ------------------------------------------------------------------------------------------------
const CONFIRM_MS = 2000, NOT_CONFIRMED = "not confirmed: press the robot's own switch";
let word = null, timer = null;
function unsure() { word = null; clearTimeout(timer); $("stop").textContent = "Emergency stop"; $("stop").classList.remove("sure"); }
async function postStop(query) {
  const answer = await fetch("api/stop" + query, { method: "POST", headers: { "X-Horde": "stop" } });
  return answer.json();
}
async function askTwice() {
  const reply = await postStop("");
  if (!reply.word) throw new Error(reply.error);
  word = reply.word; $("stop").textContent = "Really stop? Press again"; $("stop").classList.add("sure");
  timer = setTimeout(unsure, 1000 * reply.within_s);
}
async function stopRobot(confirmation) {
  unsure();
  say("stop-said", "stopping");
  const late = setTimeout(() => say("stop-said", NOT_CONFIRMED), CONFIRM_MS);
  try {
    const reply = await postStop("?word=" + encodeURIComponent(confirmation));
    const outcome = reply.is_confirmed ? "stopped" : NOT_CONFIRMED, details = reply.said || reply.error;
    say("stop-said", details ? `${outcome} (${details})` : outcome);
  } finally { clearTimeout(late); }
}
$("stop").addEventListener("click", () => {
  const request = word ? stopRobot(word) : askTwice();
  request.catch(() => { unsure(); say("stop-said", NOT_CONFIRMED); });
});

// ---- from the run to the page ----------------------------------------------------------------------------------------
function draw() { drawPen(); drawHealth(); drawShards(); drawChannels(); }
let waiting = false;
function soon() { if (!waiting) { waiting = true; requestAnimationFrame(() => { waiting = false; draw(); }); } }
function listen() {
  const source = new EventSource("api/stream");
  source.onmessage = (event) => {
    const told = JSON.parse(event.data), before = status;
    status = told.status; lostSince = 0;
    if (told.rows.length && rows.length && told.rows[0].step <= rows[rows.length - 1].step) rows = [];
    rows = rows.concat(told.rows).slice(-KEEP);
    if (told.final) { final = told.final; source.close(); }
    else if (before.state && (before.state !== status.state || before.tables_at !== status.tables_at)) refresh();
    soon();
  };
  source.onerror = () => {  // the browser tries again, unless the server has refused
    lostSince = lostSince || Date.now();
    say("state", "page lost"); $("state").className = "badge lost";
    if (source.readyState === EventSource.CLOSED || Date.now() - lostSince > GIVE_UP_MS) {
      final = facts.final; source.close(); say("notice", final); $("stop").disabled = true; unsure();
    }
  };
}
function refresh() {
  for (const drawn of [drawMap(), drawCurves(), drawTable(), drawDemon(), drawSurprise()]) drawn.catch(fail);
}
async function start() {
  facts = await get("api/run");
  document.title = facts.name + " · Horde"; say("name", facts.name);
  makeChannels(); listen();
  drawMap().catch(fail); drawCurves().catch(fail); drawTable().catch(fail); drawSurprise().catch(fail);
  const first = await get("api/demons?sort=nmsre&limit=1");
  if (first.rows.length && !chosen) chooseFirst(first.rows[0].name);
  const every = (ms, draws) => setInterval(() => {
    if (!document.hidden && !lostSince && !final && status.state === "living") for (const draw of draws) draw().catch(fail);
  }, ms);
  every(EVERY_MS, [drawMap, drawCurves, drawSurprise]); every(2000, [drawDemon, drawTable]);
  addEventListener("scroll", soon, { passive: true });
  addEventListener("resize", () => { for (const id in plots) plots[id].setSize({ width: $(id).clientWidth, height: 220 }); drawMap().catch(fail); soon(); });
}
start().catch((error) => say("headline", error.message));
