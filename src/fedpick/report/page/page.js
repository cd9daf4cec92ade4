"use strict";
(() => {
  let DATA = JSON.parse(document.getElementById("data").textContent);
  const DASHES = ["", "7 4", "2 3", "8 3 2 3"], COLOURS = 7, MOST_SHOWN = 8;
  const STATUS = [["done", "in time"], ["surplus", "in time, not needed"], ["late", "late"], ["failed", "failed"]];
  const by = (id) => document.getElementById(id);
  const state = { at: 0, hidden: new Set(), metric: 0, across: "round", bands: true, score: 0, seed: 0, order: "number" };
  let now = DATA.settings[0];

  // ---- elements: all text is set as text, never as HTML
  function make(name, attributes, ...children) {
    const svg = ["svg", "path", "line", "text", "g", "rect", "circle"].includes(name);
    const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child !== null));
    return node;
  }
  const short = (text, most = 40) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
  const colour = (i) => `var(--c${i % COLOURS})`;
  const dash = (i) => DASHES[Math.floor(i / 4) % DASHES.length];
  const shown = () => now.policies.map((_, i) => i).filter((i) => !state.hidden.has(i));
  const format = (value) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    if (size >= 1e5 || Number.isInteger(value)) return Math.round(value).toLocaleString("en");
    return size && size < 1e-3 ? value.toExponential(2) : value.toLocaleString("en", { maximumSignificantDigits: 4 });
  };
  const roughly = (value) => (value ?? 0).toLocaleString("en", { maximumSignificantDigits: 2 });
  const percent = (share) => (100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0) + "%";
  const swatch = (i) => make("svg", { width: 22, height: 10, "aria-hidden": "true" },
    make("line", { x1: 0, x2: 22, y1: 5, y2: 5, stroke: colour(i), "stroke-width": 3, "stroke-dasharray": dash(i) }));

  // ---- tooltip, and the same for screen readers
  const tip = by("tip"), live = by("live");
  function show(x, y, title, lines, speak) {
    tip.replaceChildren(make("b", {}, title), ...lines.map(([name, value, i]) => make("div", {},
      make("span", i === undefined ? {} : { style: `color:${colour(i)}` }, short(name)), make("span", {}, value))));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, x + 16 + box.width > innerWidth ? x - box.width - 12 : x + 16) + "px";
    tip.style.top = Math.max(4, Math.min(y + 12, innerHeight - box.height - 4)) + "px";
    if (speak) live.textContent = `${title}: ${lines.map(([name, value]) => `${short(name)} ${value}`).join(", ")}`;
  }
  const hide = () => { tip.hidden = true; };

  // ---- files
  function download(name, rows) {
    const cell = (value) => {
      let text = value === null || value === undefined ? "" : String(value);
      if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = "'" + text;  // a spreadsheet would compute it
      return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    save(name, rows.map((row) => row.map(cell).join(",")).join("\n") + "\n");
  }
  function save(name, text) {
    const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    const link = make("a", { href: url, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }
  const csvButton = (what, rows) => make("button", { type: "button", "aria-label": `CSV of ${what}`,
    onclick: () => download(`fedpick-${what.replaceAll(" ", "-")}.csv`, rows()) }, "CSV");

  // ---- controls
  function select(label, options, value, change) {
    const box = make("select", { onchange: () => change(box.selectedIndex) },
      ...options.map((text, i) => make("option", { selected: i === value }, short(text, 80))));
    return make("label", {}, label, box);
  }
  function radios(label, name, options, value, change) {
    return make("fieldset", {}, make("legend", {}, label), ...options.map(([key, text]) => make("label", {},
      make("input", { type: "radio", name, value: key, checked: key === value, onchange: () => change(key) }), text)));
  }
  function fill(id, caption, hint, ...parts) {
    const place = by(id), active = place.contains(document.activeElement) ? document.activeElement : null;
    const index = active ? [...place.querySelectorAll("button,select,input,[tabindex]")].indexOf(active) : -1;
    place.replaceChildren(make("figcaption", {}, short(caption, 120)), ...(hint ? [make("p", { class: "hint" }, hint)] : []), ...parts);
    place.hidden = false;
    for (const host of place.children) if (host.chart) host.append(plot(...host.chart, Math.round(host.clientWidth)));
    if (index >= 0) place.querySelectorAll("button,select,input,[tabindex]")[index]?.focus();  // as it was before redrawing
  }
  const leave = (id) => { by(id).replaceChildren(); by(id).hidden = true; };

  // ---- line charts
  function ticks(low, high, many) {
    const rough = (high - low) / Math.max(1, many), power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough * 0.999) || power;
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(+(k * step).toPrecision(12));
    return found;
  }
  function lineChart(...what) {  // drawn by `fill`, once its width is known
    return Object.assign(make("div", {}), { chart: what });
  }
  function plot(about, lines, xLabel, yLabel, tall, width) {
    const height = width < 500 ? Math.min(tall, 270) : tall;
    let lowX = Infinity, highX = -Infinity, lowY = Infinity, highY = -Infinity;
    for (const { x, y, half } of lines) for (let k = 0; k < y.length; k++) {
      const wide = half.length ? half[k] || 0 : 0;
      lowX = Math.min(lowX, x[k]); highX = Math.max(highX, x[k]);
      lowY = Math.min(lowY, y[k] - wide); highY = Math.max(highY, y[k] + wide);
    }
    if (lowX > highX) return make("p", { class: "hint" }, "No policy is shown.");
    const least = Math.min(...lines.flatMap((line) => line.y.length ? [Math.min(...line.y)] : []));
    if (least >= 0) lowY = Math.max(0, lowY);
    if (highX === lowX) { lowX -= 0.5; highX += 0.5; }
    if (highY === lowY) { lowY -= 0.5; highY += 0.5; }
    const pad = (highY - lowY) * 0.04, whole = least >= 0 && lowY < 0.25 * highY;
    lowY = whole ? 0 : lowY - pad; highY += pad;
    const yTicks = ticks(lowY, highY, Math.max(3, height / 60)), xTicks = ticks(lowX, highX, Math.max(3, width / 80));
    const left = 14 + 7.2 * Math.max(...yTicks.map((each) => format(each).length)), right = 14, top = 22, bottom = 40;
    const X = (v) => left + (v - lowX) / (highX - lowX) * (width - left - right);
    const Y = (v) => height - bottom - (v - lowY) / (highY - lowY) * (height - top - bottom);
    const svg = make("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: 0,
      "aria-label": `${about}. ${lines.map((l) => `${short(l.name)}: last value ${format(l.y.at(-1))}`).join("; ")}. Left and right arrows read the values.` });
    for (const each of yTicks) svg.append(make("line", { class: "grid", x1: left, x2: width - right, y1: Y(each), y2: Y(each) }),
      make("text", { x: left - 7, y: Y(each) + 4, "text-anchor": "end" }, format(each)));
    for (const each of xTicks) svg.append(make("text", { x: X(each), y: height - bottom + 18, "text-anchor": "middle" }, format(each)));
    svg.append(make("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }),
      make("text", { x: (left + width - right) / 2, y: height - 5, "text-anchor": "middle" }, xLabel),
      make("text", { x: 2, y: 13 }, short(yLabel, 60)));
    const join = (points) => points.map(([a, b], k) => `${k ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");
    for (const { x, y, half, i } of lines) {
      if (half.length && y.length > 1) svg.append(make("path", { class: "band", fill: colour(i), opacity: lines.length > 3 ? 0.09 : 0.15, d: join([
        ...x.map((v, k) => [X(v), Y(Math.min(highY, y[k] + half[k]))]),
        ...x.map((v, k) => [X(v), Y(Math.max(lowY, y[k] - half[k]))]).reverse()]) + "Z" }));
    }
    for (const { x, y, i } of lines) svg.append(y.length > 1
      ? make("path", { class: "curve", stroke: colour(i), "stroke-dasharray": dash(i), d: join(x.map((v, k) => [X(v), Y(y[k])])) })
      : make("g", {}, ...y.map((v, k) => make("circle", { cx: X(x[k]), cy: Y(v), r: 4, fill: colour(i) }))));
    const marks = make("g", {});
    svg.append(marks);
    const grid = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
    let cursor = -1;
    const nearest = (values, v) => {
      let low = 0, high = values.length - 1;
      while (high - low > 1) { const mid = (low + high) >> 1; if (values[mid] < v) low = mid; else high = mid; }
      return Math.abs(values[low] - v) <= Math.abs(values[high] - v) ? low : high;
    };
    const point = (v, speak) => {
      const found = lines.filter((line) => line.y.length && v >= line.x[0] - 1e-9 && v <= line.x.at(-1) + 1e-9)
        .map((line) => ({ line, k: nearest(line.x, v) })).sort((a, b) => b.line.y[b.k] - a.line.y[a.k]);
      marks.replaceChildren(make("line", { class: "cross", x1: X(v), x2: X(v), y1: top, y2: height - bottom }),
        ...found.map(({ line, k }) => make("circle", { cx: X(line.x[k]), cy: Y(line.y[k]), r: 4, fill: colour(line.i) })));
      const box = svg.getBoundingClientRect(), scale = box.width / width;
      show(box.left + X(v) * scale, box.top + top * scale, `${xLabel} ${format(v)}`, found.map(({ line, k }) =>
        [line.name, format(line.y[k]) + (line.half.length ? ` ±${roughly(line.half[k])}` : ""), line.i]), speak);
    };
    const off = () => { marks.replaceChildren(); hide(); cursor = -1; };
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect(), at = (event.clientX - box.left) * width / box.width;
      if (at < left - 4 || at > width - right + 4) return off();
      cursor = nearest(grid, lowX + (at - left) / (width - left - right) * (highX - lowX));
      point(grid[cursor], false);
    });
    svg.addEventListener("pointerleave", off);
    svg.addEventListener("blur", off);
    svg.addEventListener("keydown", (event) => {
      const jump = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -grid.length, End: grid.length }[event.key];
      if (event.key === "Escape") off();
      if (jump === undefined) return;
      event.preventDefault();
      cursor = Math.max(0, Math.min(grid.length - 1, cursor + jump));
      point(grid[cursor], true);
    });
    return svg;
  }

  // ---- the figures
  const unit = (seconds) => (seconds < 300 ? [1, "seconds"] : seconds < 3 * 3600 ? [60, "minutes"] : [3600, "hours"]);
  const bulk = (megabytes) => (megabytes < 1000 ? [1, "MB sent"] : megabytes < 1e6 ? [1e3, "GB sent"] : [1e6, "TB sent"]);
  const last = (metric, key) => Math.max(0, ...metric.lines.map((line) => line[key].at(-1) || 0));
  function scaled(metric, across, policies) {
    const [by_, label] = across === "seconds" ? unit(last(metric, "seconds")) : across === "megabytes" ? bulk(last(metric, "megabytes")) : [1, "round"];
    const time = across === "seconds" && !now.real ? `simulated ${label}` : label;
    return [time, policies.map((i) => ({ name: now.policies[i], i, x: metric.lines[i][across].map((v) => v / by_),
      y: metric.lines[i].mean, half: state.bands ? metric.lines[i].half : [] }))];
  }
  const longRows = (xName, yName, lines) => [["policy", xName, yName, "half_width_of_95%_interval"],
    ...lines.flatMap((line) => line.y.map((y, k) => [line.name, line.x[k], y, line.half[k]]))];

  function curves() {
    if (!now.metrics.length) return leave("f-curves");
    const metric = now.metrics[Math.min(state.metric, now.metrics.length - 1)];
    const ways = [["round", "rounds"], ["seconds", now.real ? "time" : "simulated time"], ["megabytes", "bytes sent"]]
      .filter(([key]) => key === "round" || last(metric, key) > 0);
    const across = ways.some(([key]) => key === state.across) ? state.across : "round";
    const [xLabel, lines] = scaled(metric, across, shown());
    const several = metric.lines.some((line) => line.half.length), wide = Math.max(...metric.lines.map((line) => line.width));
    const hint = [several ? "Bands are 95% intervals of the mean over seeds." : "One seed: no intervals.",
      wide > 1 ? `Each point is the mean of ${wide} rounds.` : ""].join(" ");
    const tools = make("div", { class: "tools" },
      select("Show", now.metrics.map((each) => each.label), now.metrics.indexOf(metric), (i) => { state.metric = i; curves(); }),
      ways.length > 1 ? radios("over", "across", ways, across, (key) => { state.across = key; curves(); }) : null,
      several ? make("label", {}, make("input", { type: "checkbox", checked: state.bands, onchange: (e) => { state.bands = e.target.checked; curves(); counts(); } }), "bands") : null,
      csvButton("curves", () => longRows(xLabel, metric.label, lines)));
    fill("f-curves", metric.label, hint, tools, lineChart(`${metric.label} over ${xLabel}`, lines, xLabel, metric.label, 380));
  }

  function gaps() {
    by("gaps").hidden = !now.differences.length;
    if (!now.differences.length) return;
    const score = now.differences[Math.min(state.score, now.differences.length - 1)];
    const rows = score.rows.filter((row) => !state.hidden.has(row.policy));
    const most = 1.06 * Math.max(1e-12, ...rows.map((row) => Math.abs(row.mean) + (row.half || 0)));
    const at = (v) => `${(50 + 50 * v / most).toFixed(2)}%`;
    const narrow = innerWidth < 600;  // the interval goes below the name
    const body = rows.map((row) => {
      const svg = make("svg", { "aria-hidden": "true" }, make("line", { class: "axis", x1: "50%", x2: "50%", y1: 0, y2: "100%" }));
      const half = row.half || 0;
      svg.append(make("line", { x1: at(row.mean - half), x2: at(row.mean + half), y1: "50%", y2: "50%", stroke: colour(row.policy), "stroke-width": 3 }),
        make("circle", { cx: at(row.mean), cy: "50%", r: 5, fill: row.clear ? colour(row.policy) : "var(--bg)", stroke: colour(row.policy), "stroke-width": 2 }));
      const name = make("th", { scope: "row", class: narrow ? "bare" : "" }, make("span", { class: "name" }, short(now.policies[row.policy], 200)));
      const value = make("td", { class: narrow ? "number bare" : "number" }, row.clear ? make("strong", {}, row.text + " *") : row.text);
      return narrow ? make("tbody", {}, make("tr", {}, name, value), make("tr", { "aria-hidden": "true" }, make("td", { class: "drawn", colspan: 2 }, svg)))
        : make("tbody", {}, make("tr", {}, name, make("td", { class: "drawn" }, svg), value));
    });
    fill("f-gaps", score.label, "Paired by seed, with 95% intervals; the line in the middle is 0. Filled and *: the interval excludes 0.",
      make("div", { class: "tools" }, select("Score", now.differences.map((each) => each.label), now.differences.indexOf(score), (i) => { state.score = i; gaps(); }),
        csvButton("differences", () => [["policy", "score", "difference", "half_width_of_95%_interval", "excludes_0"],
          ...rows.map((row) => [now.policies[row.policy], score.label, row.mean, row.half, row.clear])])),
      make("table", { class: "gaps" }, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "policy"),
        narrow ? null : make("th", { scope: "col" }, make("span", { class: "unseen" }, "interval, drawn")), make("th", { scope: "col", class: "number" }, "difference"))), ...body));
  }

  const heat = () => getComputedStyle(document.documentElement).getPropertyValue("--heat").trim().split(" ")
    .map((hex) => [0, 2, 4].map((k) => parseInt(hex.slice(k, k + 2), 16)));
  function shade(stops, share) {
    const at = Math.min(1, share) * (stops.length - 1), low = Math.min(stops.length - 2, Math.floor(at));
    return stops[low].map((v, k) => Math.round(v + (at - low) * (stops[low + 1][k] - v)));
  }
  const edge = (k, bins, total) => Math.ceil(k * total / bins);  // the first of the total in bin k
  const span = (from, to) => (to - from <= 1 ? format(from) : `${format(from)} to ${format(to - 1)}`);
  function maps() {
    const seeds = now.maps[0].map((each) => each.seed);
    const found = shown().map((i) => ({ i, map: now.maps[i][Math.min(state.seed, now.maps[i].length - 1)] }));
    const cellOf = ({ map }, row, column) => {
      const from = edge(row, map.height, map.clients), to = edge(row + 1, map.height, map.clients);
      const first = edge(column, map.width, now.last), end = edge(column + 1, map.width, now.last);
      const times = map.cells[row * map.width + column];
      return { from, to, first, end, times, share: times / ((to - from) * (end - first)) };
    };
    const shares = [];
    for (const each of found) {
      each.share = each.map.cells.map((_, k) => cellOf(each, Math.floor(k / each.map.width), k % each.map.width).share);
      for (const share of each.share) shares.push(share);
      const sums = Array.from({ length: each.map.height }, (_, r) => each.map.cells.slice(r * each.map.width, (r + 1) * each.map.width).reduce((a, b) => a + b, 0));
      each.order = sums.map((_, r) => r);
      if (state.order === "often") each.order.sort((a, b) => sums[b] - sums[a] || a - b);
    }
    shares.sort((a, b) => a - b);
    const most = shares[Math.floor(0.995 * (shares.length - 1))] || shares.at(-1) || 1, stops = heat();
    const css = (share) => `rgb(${shade(stops, share).join(" ")})`;
    const draw = (each) => {
      const { map } = each, canvas = make("canvas", { width: map.width, height: map.height, role: "img", tabindex: 0,
        "aria-label": `Map of clients and rounds for ${short(now.policies[each.i])}: how often clients were chosen. Arrow keys read the cells.` });
      const pen = canvas.getContext("2d"), image = pen.createImageData(map.width, map.height);
      each.order.forEach((r, y) => { for (let x = 0; x < map.width; x++)
        image.data.set([...shade(stops, each.share[r * map.width + x] / most), 255], 4 * (y * map.width + x)); });
      pen.putImageData(image, 0, 0);
      let cursor = null;
      const tell = (x, y, speak) => {
        const cell = cellOf(each, each.order[y], x), box = canvas.getBoundingClientRect();
        show(box.left + (x + 0.5) / map.width * box.width, box.top + (y + 0.5) / map.height * box.height, `client ${span(cell.from, cell.to)}, round ${span(cell.first + 1, cell.end + 1)}`,
          [["times chosen", format(cell.times)], ["share of these rounds", percent(cell.share)]], speak);
      };
      canvas.addEventListener("pointermove", (event) => {
        const box = canvas.getBoundingClientRect();
        const x = Math.floor((event.clientX - box.left) / box.width * map.width), y = Math.floor((event.clientY - box.top) / box.height * map.height);
        if (x >= 0 && y >= 0 && x < map.width && y < map.height) tell(x, y, false);
      });
      canvas.addEventListener("pointerleave", hide);
      canvas.addEventListener("blur", hide);
      canvas.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
        if (event.key === "Escape") hide();
        if (!step) return;
        event.preventDefault();
        cursor = cursor ? [cursor[0] + step[0], cursor[1] + step[1]] : [0, 0];
        cursor = [Math.max(0, Math.min(map.width - 1, cursor[0])), Math.max(0, Math.min(map.height - 1, cursor[1]))];
        tell(...cursor, true);
      });
      return make("div", { class: "map" }, make("h3", { title: short(now.policies[each.i], 500) }, now.policies[each.i]), canvas,
        make("p", {}, make("span", {}, "round 1"), make("span", {}, format(now.last))));
    };
    const binned = found[0] && (found[0].map.clients > found[0].map.height || now.last > found[0].map.width);
    const rows = () => [["policy", "seed", "first_client", "last_client", "first_round", "last_round", "times_chosen"], ...found.flatMap((each) =>
      each.map.cells.map((_, k) => { const cell = cellOf(each, Math.floor(k / each.map.width), k % each.map.width);
        return [now.policies[each.i], each.map.seed, cell.from, cell.to - 1, cell.first + 1, cell.end, cell.times]; }))];
    fill("f-maps", "Clients and rounds", `One line per client${state.order === "often" ? ", the most chosen on top" : ", client 0 on top"}; rounds go to the right.` + (binned ? " Clients and rounds are grouped." : ""),
      make("div", { class: "tools" }, seeds.length > 1 ? select("Seed", seeds.map(String), Math.min(state.seed, seeds.length - 1), (i) => { state.seed = i; maps(); }) : null,
        radios("order by", "order", [["number", "number"], ["often", "times chosen"]], state.order, (key) => { state.order = key; maps(); }),
        make("span", { class: "scale" }, "0%", make("i", { style: `background:linear-gradient(90deg,${[0, 0.25, 0.5, 0.75, 1].map(css).join(",")})` }), `${percent(most)} of the rounds or more`),
        csvButton("who was chosen", rows)),
      make("div", { class: "maps" }, ...found.map(draw)));
  }

  function counts() {
    const lines = shown().map((i) => ({ name: now.policies[i], i, x: now.counts[i].percent, y: now.counts[i].mean, half: state.bands ? now.counts[i].half : [] }));
    const xLabel = "clients, least chosen first (%)";
    fill("f-counts", "Times chosen", `${format(now.clients)} clients, ranked within each seed; a flat line is equal treatment.`,
      make("div", { class: "tools" }, csvButton("times chosen", () => longRows("percent_of_clients", "times_chosen", lines))),
      lineChart("Times chosen, from the least to the most chosen client", lines, xLabel, "times chosen", 330));
  }
  function simpleTable(label, heads, rows) {
    return make("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": label }, make("table", {},
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "policy"), ...heads.map((head) => make("th", { scope: "col", class: "number" }, head)))),
      make("tbody", {}, ...rows.map(([i, cells]) => make("tr", {}, make("th", { scope: "row" }, make("span", { class: "name" }, short(now.policies[i], 200))),
        ...cells.map((cell) => make("td", { class: "number" }, cell)))))));
  }
  function fair() {
    fill("f-fair", "Fairness", "Jain's index is 1 if all clients are chosen equally often; never chosen is a share of all clients; the last column is the mean over clients at the end.",
      simpleTable("Fairness of the policies", now.fair.heads, shown().map((i) => [i, now.fair.rows[i]])));
  }
  function answers() {
    const all = shown(), total = (i) => STATUS.reduce((sum, [key]) => sum + now.status[i][key], 0) || 1;
    const used = STATUS.filter(([key]) => now.policies.some((_, i) => now.status[i][key] > 0));
    const bars = make("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": "How the work of chosen clients ended" }, make("table", {},
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "policy"), ...used.map(([key, text]) =>
        make("th", { scope: "col", class: "number" }, make("span", { class: "key" }, make("i", { style: `background:var(--${key})` }), text))))),
      ...all.map((i) => make("tbody", {}, make("tr", {}, make("th", { scope: "row", class: "bare" }, make("span", { class: "name" }, short(now.policies[i], 200))),
        ...used.map(([key]) => make("td", { class: "number bare" }, percent(now.status[i][key] / total(i))))),
      make("tr", { "aria-hidden": "true" }, make("td", { colspan: used.length + 1, style: "padding-top:0" }, make("div", { class: "stack" }, ...used.map(([key]) =>
        make("i", { style: `width:${100 * now.status[i][key] / total(i)}%;background:var(--${key})` })))))))));
    fill("f-status", "How it ended for the chosen clients", "Share of all selections of all seeds.", make("div", { class: "tools" },
      csvButton("answers", () => [["policy", ...used.map(([key]) => key)], ...all.map((i) => [now.policies[i], ...used.map(([key]) => now.status[i][key])])])), bars);
    const timed = all.filter((i) => now.answers[i].mean.length);
    if (!timed.length) return leave("f-answers");
    const lines = timed.map((i) => ({ name: now.policies[i], i, x: now.answers[i].percent, y: now.answers[i].mean, half: [] }));
    const rounds = timed.filter((i) => now.answers[i].rounds.length).map((i) => [i, now.answers[i].rounds.map(format)]);
    fill("f-answers", "Seconds until an answer in time", "All answers of all seeds, the fastest first: at 90, nine of ten answers are at least as fast.",
      make("div", { class: "tools" }, csvButton("durations", () => longRows("percent_of_answers", "seconds", lines))),
      lineChart("Seconds until an answer in time, from the fastest to the slowest", lines, "answers, fastest first (%)", "seconds", 300),
      rounds.length ? simpleTable("Seconds a round", ["seconds a round: median", "90 of 100", "99 of 100"], rounds) : "");
  }
  function there() {
    const metric = now.metrics.find((each) => each.name === "available");
    if (!metric) return leave("f-there");
    let [xLabel, lines] = scaled(metric, "round", shown());
    if (lines.length > 1 && lines.every((line) => String(line.y) === String(lines[0].y))) lines = [{ ...lines[0], name: "all policies" }];
    const wide = Math.max(...metric.lines.map((line) => line.width));
    fill("f-there", "Clients that were there", `Of ${format(now.clients)} clients; the others were away.` + (wide > 1 ? ` Each point is the mean of ${wide} rounds.` : ""),
      make("div", { class: "tools" }, csvButton("clients there", () => longRows("round", "clients_there", lines))),
      lineChart("Clients that were there over rounds", lines, xLabel, "clients", 240));
  }
  const redraw = () => { hide(); gaps(); curves(); maps(); counts(); fair(); answers(); there(); };

  // ---- what is shown
  function chips() {
    by("policies").replaceChildren(...now.policies.map((name, i) => {
      const chip = make("button", { type: "button", class: "chip", "aria-pressed": String(!state.hidden.has(i)), title: short(name, 500),
        onclick: () => { if (!state.hidden.delete(i)) state.hidden.add(i); chip.setAttribute("aria-pressed", String(!state.hidden.has(i))); redraw(); } },
        swatch(i), make("span", {}, short(name, 120)));
      return chip;
    }));
  }
  function go(at) {
    now = DATA.settings[at];
    by("bar").hidden = by("charts").hidden = !now;
    if (!now) return;  // of a live page, before the first round
    state.hidden = new Set(now.policies.map((_, i) => i).slice(MOST_SHOWN));
    chips();
    redraw();
  }
  function places() {
    by("where").replaceChildren(...DATA.settings.map((each) => make("option", {}, short(each.title || "all", 120))));
    by("where-label").hidden = DATA.settings.length < 2;
  }
  function wire() {
    for (const each of document.querySelectorAll(".copier, .tools:has(> #all-csv)")) each.hidden = false;
  }
  // Of the live page: draw new numbers, and keep what the reader has chosen.
  document.addEventListener("fedpick-news", (event) => {
    const before = now, hidden = [...state.hidden].map((i) => before.policies[i]);
    const metric = before?.metrics[state.metric]?.name, score = before?.differences[state.score]?.label;
    DATA = event.detail;
    wire();
    places();
    const at = Math.max(0, DATA.settings.findIndex((each) => each.title === before?.title));
    if (!before || !DATA.settings[at]) return go(at);
    now = DATA.settings[at];
    by("where").selectedIndex = at;
    const order = (list, key, value) => Math.max(0, list.findIndex((each) => each[key] === value));
    state.metric = order(now.metrics, "name", metric);
    state.score = order(now.differences, "label", score);
    state.hidden = new Set(now.policies.map((_, i) => i).filter((i) => hidden.includes(now.policies[i]) ||
      (i >= MOST_SHOWN && !before.policies.includes(now.policies[i]))));
    const chip = [...by("policies").children].indexOf(document.activeElement);
    chips();
    by("policies").children[chip]?.focus();
    redraw();
  });
  const themes = ["system", "light", "dark"], dark = matchMedia("(prefers-color-scheme: dark)");
  let theme = "system";
  try { theme = localStorage.getItem("fedpick-theme") || theme; } catch { /* not allowed for this file */ }
  function paint() {
    document.documentElement.dataset.theme = theme === "system" ? (dark.matches ? "dark" : "light") : theme;
    by("theme").textContent = `Theme: ${theme}`;
  }
  by("theme").addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    try { localStorage.setItem("fedpick-theme", theme); } catch { /* not allowed for this file */ }
    paint();
    if (now) maps();
  });
  dark.addEventListener("change", () => { paint(); if (now) maps(); });
  document.addEventListener("click", async (event) => {  // sections of a live page are replaced
    if (event.target.id === "all-csv") save("fedpick-scores.csv", DATA.csv);
    if (!event.target.classList.contains("copier")) return;
    const button = event.target, pre = button.previousElementSibling;
    try { await navigator.clipboard.writeText(pre.textContent); } catch {
      getSelection().selectAllChildren(pre);
      document.execCommand("copy");
    }
    button.textContent = live.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  by("theme").hidden = false;
  by("where").addEventListener("change", () => go(by("where").selectedIndex));
  wire();
  places();
  paint();
  go(0);
  let width = innerWidth, soon = 0;
  addEventListener("resize", () => {
    clearTimeout(soon);
    soon = setTimeout(() => { if (width !== innerWidth && now) { width = innerWidth; redraw(); } }, 100);
  });
  addEventListener("scroll", hide, { passive: true });
})();
