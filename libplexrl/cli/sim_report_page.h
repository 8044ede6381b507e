// SPDX-License-Identifier: Apache-2.0
// The page of SimReport; @FIGURES@ and @SERIES@ are replaced by JSON. It loads nothing.
#pragma once

namespace plexrl::cli {

constexpr const char* kSimReportPage = R"PAGE(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>plexrl sim</title>
<style>
body{font:14px/1.45 system-ui,sans-serif;color:#1d2733;background:#fff;margin:24px auto;max-width:1120px;padding:0 16px}
h1{font-size:22px;margin:0 0 2px}h2{font-size:16px;margin:28px 0 6px}p{margin:4px 0 10px;color:#4d5b69}
.cards{display:flex;flex-wrap:wrap;gap:10px;margin:14px 0}.card{border:1px solid #d8dee5;border-radius:6px;padding:8px 14px;min-width:120px}
.card b{display:block;font-size:20px}.card span{color:#4d5b69;font-size:12px}
table{border-collapse:collapse;margin:6px 0}td,th{border-bottom:1px solid #e3e8ed;padding:3px 12px 3px 0;text-align:left;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}svg{display:block;width:100%;height:auto;background:#f7f9fb;border:1px solid #e3e8ed}
#tables{overflow-x:auto}
text{font:11px system-ui,sans-serif;fill:#4d5b69}
</style></head><body>
<h1 id="title"></h1><p id="sub"></p><div class="cards" id="cards"></div>
<h2>Timeline of the first groups</h2><p>One row per device group. A colour is a job; full colour is training, pale is rollout; white is idle.</p><svg id="timeline"></svg>
<h2>GPUs over time</h2><p>Held by jobs (grey) and busy (blue).</p><svg id="gpus"></svg>
<h2>Jobs in the queue</h2><svg id="queue"></svg>
<h2>Slowdown of the jobs</h2><p>Run time shared, by run time alone.</p><svg id="slow"></svg>
<h2>Compared and varied</h2><div id="tables"></div>
<script>
const figures = @FIGURES@;
const series = @SERIES@;
const NS = 'http://www.w3.org/2000/svg';
const W = 1080, LEFT = 130, RIGHT = 12;
function el(parent, name, attrs, text) {
  const node = document.createElementNS(NS, name);
  for (const key in attrs) node.setAttribute(key, attrs[key]);
  if (text !== undefined) node.textContent = text;
  parent.appendChild(node);
  return node;
}
function time(s) {
  if (s < 120) return s.toFixed(0) + ' s';
  if (s < 7200) return (s / 60).toFixed(0) + ' min';
  if (s < 172800) return (s / 3600).toFixed(1) + ' h';
  return (s / 86400).toFixed(1) + ' d';
}
function number(v) {
  if (typeof v !== 'number') return v === undefined ? '-' : String(v);
  return Number.isInteger(v) ? v.toLocaleString('en') : String(+v.toPrecision(4));
}
function percent(v) { return (100 * v).toFixed(1) + ' %'; }
function frame(id, height) {
  const svg = document.getElementById(id);
  svg.setAttribute('viewBox', '0 0 ' + W + ' ' + height);
  return svg;
}
function timeAxis(svg, end, height, x) {
  for (let i = 0; i <= 8; ++i) {
    const s = end * i / 8;
    el(svg, 'line', {x1: x(s), x2: x(s), y1: 4, y2: height - 18, stroke: '#dde3e9'});
    el(svg, 'text', {x: x(s), y: height - 5, 'text-anchor': i === 8 ? 'end' : i === 0 ? 'start' : 'middle'}, time(s));
  }
}
function timeline() {
  const rows = series.rows.length, height = rows * 16 + 28;
  const svg = frame('timeline', height);
  let end = 1;
  for (const s of series.spans) end = Math.max(end, s[4]);
  const x = s => LEFT + (W - LEFT - RIGHT) * s / end;
  timeAxis(svg, end, height, x);
  series.rows.forEach((label, i) => el(svg, 'text', {x: 6, y: 6 + i * 16 + 11}, label));
  for (const [row, job, trains, from, to] of series.spans) {
    const bar = el(svg, 'rect', {x: x(from), y: 6 + row * 16 + 2, width: Math.max(0.3, x(to) - x(from)), height: 12,
      fill: 'hsl(' + (job * 137.5 % 360).toFixed(0) + ',60%,45%)', 'fill-opacity': trains ? 1 : 0.35});
    el(bar, 'title', {}, 'job ' + job + (trains ? ', training, ' : ', rollout, ') + time(from) + ' to ' + time(to));
  }
}
function area(svg, s, x, y, fill) {
  let d = 'M' + x(0) + ',' + y(0);
  const end = Math.max(1, series.end), at = i => x(Math.min(end, i * s.width));
  s.values.forEach((v, i) => { d += 'L' + at(i) + ',' + y(v) + 'L' + at(i + 1) + ',' + y(v); });
  el(svg, 'path', {d: d + 'L' + at(s.values.length) + ',' + y(0) + 'Z', fill: fill});
}
function overTime(id, list) {
  const height = 190, svg = frame(id, height);
  const end = Math.max(1, series.end);
  let top = 1;
  for (const [s] of list) top = Math.max(top, ...s.values);
  const x = s => LEFT + (W - LEFT - RIGHT) * s / end;
  const y = v => height - 22 - (height - 34) * v / top;
  for (let i = 0; i <= 4; ++i) {
    el(svg, 'line', {x1: LEFT, x2: W - RIGHT, y1: y(top * i / 4), y2: y(top * i / 4), stroke: '#dde3e9'});
    el(svg, 'text', {x: LEFT - 8, y: y(top * i / 4) + 4, 'text-anchor': 'end'}, number(+(top * i / 4).toPrecision(3)));
  }
  for (const [s, fill] of list) area(svg, s, x, y, fill);
  timeAxis(svg, end, height, x);
}
function slowdowns() {
  const height = 190, svg = frame('slow', height), bins = series.slowdowns;
  const last = bins.length ? bins[bins.length - 1][0] : 1;
  const end = Math.max(2, last + 0.1), top = Math.max(1, ...bins.map(b => b[1]));
  const x = s => LEFT + (W - LEFT - RIGHT) * (s - 1) / (end - 1);
  const y = v => height - 22 - (height - 34) * v / top;
  for (const [from, count] of bins) {
    const bar = el(svg, 'rect', {x: x(Math.max(1, from)), y: y(count), width: Math.max(1, x(1.048) - x(1)), height: y(0) - y(count), fill: '#2f6fb0'});
    el(bar, 'title', {}, count + ' jobs from ' + from.toFixed(2) + ' to ' + (from + 0.05).toFixed(2));
  }
  for (let i = 0; i <= 8; ++i) {
    const s = 1 + (end - 1) * i / 8;
    el(svg, 'text', {x: x(s), y: height - 5, 'text-anchor': i === 8 ? 'end' : 'middle'}, s.toFixed(2));
  }
  el(svg, 'text', {x: LEFT - 8, y: y(top) + 4, 'text-anchor': 'end'}, top + ' jobs');
}
function table(title, rows) {
  if (!rows || !rows.length) return;
  const box = document.getElementById('tables'), heading = document.createElement('h2');
  heading.textContent = title;
  box.appendChild(heading);
  const node = document.createElement('table'), keys = [];
  const flat = rows.map(row => {
    const out = {};
    for (const key in row) {
      const v = row[key];
      if (Array.isArray(v)) out[key] = v.join(', ');
      else if (v && typeof v === 'object') for (const k in v) out['saved ' + k] = v[k];
      else out[key] = v;
    }
    return out;
  });
  for (const row of flat) for (const key in row) if (!keys.includes(key)) keys.push(key);
  const cell = (line, tag, v) => {
    const c = document.createElement(tag);
    c.textContent = tag === 'th' ? v : number(v);
    if (typeof v === 'number') c.className = 'n';
    line.appendChild(c);
  };
  const head = node.insertRow();
  keys.forEach(key => cell(head, 'th', key.replaceAll('_', ' ')));
  for (const row of flat) { const line = node.insertRow(); keys.forEach(key => cell(line, 'td', row[key])); }
  box.appendChild(node);
}
document.getElementById('title').textContent = 'plexrl sim: ' + figures.workload;
document.getElementById('sub').textContent = 'policy ' + figures.policy + ', placement ' + figures.placement +
  ', seed ' + figures.seed + (figures.load ? ', load ' + figures.load : '') + ', ' + number(figures.jobs) + ' jobs';
for (const [name, text] of [
  ['saved against split-async', percent(figures.device_hours_saved['split-async'])],
  ['saved against isolated', percent(figures.device_hours_saved.isolated)],
  ['closed-form bound', percent(figures.closed_form_bound)], ['mean slowdown', number(figures.mean_slowdown)],
  ['p99 slowdown', number(figures.p99_slowdown)], ['completion / isolated', number(figures.completion_vs_isolated)],
  ['utilisation', percent(figures.utilisation)], ['makespan', time(figures.makespan_s)]]) {
  const card = document.createElement('div'), label = document.createElement('span'), value = document.createElement('b');
  card.className = 'card';
  value.textContent = text;
  label.textContent = name;
  card.append(value, label);
  document.getElementById('cards').appendChild(card);
}
timeline();
overTime('gpus', [[series.held, '#c9d2db'], [series.busy, '#2f6fb0']]);
overTime('queue', [[series.queue, '#b0642f']]);
slowdowns();
table('Published figures', figures.published);
table('Compared', figures.compare);
table('Sensitivity', figures.sensitivity);
</script></body></html>
)PAGE";

}  // namespace plexrl::cli
