  let DATA = JSON.parse(document.getElementById("data").textContent);
  const DASHES = ["", "7 4", "2 3", "8 3 2 3"], COLOURS = 7, MOST_SHOWN = 8, MOST_BESIDE = 30;
  const STATUS = [["done", "in time"], ["surplus", "in time, not needed"], ["late", "late"], ["failed", "failed"]];
  const by = (id) => document.getElementById(id);
  const state = { at: 0, hidden: new Set(), metric: 0, across: "round", bands: true, score: 0, seed: 0, order: "number", kind: 0, scoreOf: "chosen" };
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
    for (const host of place.children) if (host.draw) host.append(host.draw(Math.round(host.clientWidth)));
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
  // Drawn by `fill`, once the width is known: `draw` gets it.
  const drawing = (draw) => Object.assign(make("div", {}), { draw });
  const lineChart = (about, lines, xLabel, yLabel, tall, mark) => drawing((width) => plot(about, lines, xLabel, yLabel, tall, mark, width));
  function plot(about, lines, xLabel, yLabel, tall, mark, width) {
    const height = width < 500 ? Math.min(tall, 270) : tall;
    let lowX = Infinity, highX = -Infinity, lowY = Infinity, highY = -Infinity;
    for (const { x, y, half, most = Infinity } of lines) for (let k = 0; k < y.length; k++) {
      const wide = half.length ? half[k] || 0 : 0;
      lowX = Math.min(lowX, x[k]); highX = Math.max(highX, x[k]);
      lowY = Math.min(lowY, y[k] - wide); highY = Math.max(highY, Math.min(most, y[k] + wide));
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
    if (mark) svg.append(make("rect", { class: "marked", x: X(mark.from), y: top, width: X(mark.to) - X(mark.from), height: height - top - bottom }),
      make("text", { x: X(mark.to) + 5, y: height - bottom - 8 }, mark.text));
    for (const each of yTicks) svg.append(make("line", { class: "grid", x1: left, x2: width - right, y1: Y(each), y2: Y(each) }),
      make("text", { x: left - 7, y: Y(each) + 4, "text-anchor": "end" }, format(each)));
    for (const each of xTicks) svg.append(make("text", { x: X(each), y: height - bottom + 18, "text-anchor": "middle" }, format(each)));
    svg.append(make("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }),
      make("text", { x: (left + width - right) / 2, y: height - 5, "text-anchor": "middle" }, xLabel),
      make("text", { x: 2, y: 13 }, short(yLabel, 60)));
    const join = (points) => points.map(([a, b], k) => `${k ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");
    for (const { x, y, half, i, most = Infinity } of lines) {
      if (half.length && y.length > 1) svg.append(make("path", { class: "band", fill: colour(i), opacity: lines.length > 3 ? 0.09 : 0.15, d: join([
        ...x.map((v, k) => [X(v), Y(Math.min(highY, most, y[k] + half[k]))]),
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
