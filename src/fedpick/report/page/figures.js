  // ---- the figures
  const unit = (seconds) => (seconds < 300 ? [1, "seconds"] : seconds < 3 * 3600 ? [60, "minutes"] : [3600, "hours"]);
  const bulk = (megabytes) => (megabytes < 1000 ? [1, "MB sent"] : megabytes < 1e6 ? [1e3, "GB sent"] : [1e6, "TB sent"]);
  const last = (metric, key) => Math.max(0, ...metric.lines.map((line) => line[key].at(-1) || 0));
  function scaled(metric, across, policies) {
    const [by_, label] = across === "seconds" ? unit(last(metric, "seconds")) : across === "megabytes" ? bulk(last(metric, "megabytes")) : [1, "round"];
    const time = across === "seconds" && !now.real ? `simulated ${label}` : label;
    return [time, policies.map((i) => ({ name: now.policies[i], i, x: metric.lines[i][across].map((v) => v / by_),
      y: metric.lines[i].mean, half: state.bands ? metric.lines[i].half : [], most: metric.share ? 1 : Infinity }))];
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
    const hint = [several ? "Bands are 95% intervals of the mean over seeds." : now.real ? "" : "One seed: no intervals.",
      wide > 1 ? `Each point is the mean of ${wide} rounds.` : ""].filter(Boolean).join(" ");
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
  // Clients by their names, where the page has them: `names` is a place in now.names.
  const named = (from, to, names) => (names === null ? null : now.names[names].slice(from, to));
  const whom = (from, to, names) => {
    const known = named(from, to, names) || [span(from, to)], more = known.length - 3;
    return `${known.length > 1 ? "clients" : "client"} ${known.slice(0, 3).map((name) => short(name)).join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
  };
  const nameCell = (from, to, names) => (named(from, to, names) || []).join("; ");
  const topmost = () => (now.real ? "the first to join on top" : "client 0 on top");
  const bin = (map, row, column) => ({ from: edge(row, map.height, map.clients), to: edge(row + 1, map.height, map.clients),
    first: edge(column, map.width, now.last), end: edge(column + 1, map.width, now.last), names: map.names });
  const gradient = (stops) => `background:linear-gradient(90deg,${[0, 0.25, 0.5, 0.75, 1].map((share) => `rgb(${shade(stops, share).join(" ")})`).join(",")})`;
  const seeded = () => now.counts.some((each) => each.half.length);  // there are several seeds
  // A map of clients and rounds: `paint` gives a cell's colour, `tell` its bin and its lines.
  function grid(title, about, width, height, paint, tell) {
    const called = Array.from({ length: height }, (_, y) => { const cell = tell(0, y)[0]; return (named(cell.from, cell.to, cell.names) || [])[0]; });
    const beside = height <= MOST_BESIDE && called[0] !== undefined;  // a name for each line
    const canvas = make("canvas", { width, height, role: "img", tabindex: 0, "aria-label": `${about} Arrow keys read the cells.` });
    const pen = canvas.getContext("2d"), image = pen.createImageData(width, height);
    for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) image.data.set([...paint(x, y), 255], 4 * (y * width + x));
    pen.putImageData(image, 0, 0);
    let cursor = null;
    const read = (x, y, speak) => {
      const [cell, lines] = tell(x, y), box = canvas.getBoundingClientRect();
      show(box.left + (x + 0.5) / width * box.width, box.top + (y + 0.5) / height * box.height, `${whom(cell.from, cell.to, cell.names)}, round ${span(cell.first + 1, cell.end + 1)}`, lines, speak);
    };
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect();
      const x = Math.floor((event.clientX - box.left) / box.width * width), y = Math.floor((event.clientY - box.top) / box.height * height);
      if (x >= 0 && y >= 0 && x < width && y < height) read(x, y, false);
    });
    canvas.addEventListener("pointerleave", hide);
    canvas.addEventListener("blur", hide);
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (event.key === "Escape") hide();
      if (!step) return;
      event.preventDefault();
      cursor = cursor ? [cursor[0] + step[0], cursor[1] + step[1]] : [0, 0];
      cursor = [Math.max(0, Math.min(width - 1, cursor[0])), Math.max(0, Math.min(height - 1, cursor[1]))];
      read(...cursor, true);
    });
    const below = make("p", {}, make("span", {}, "round 1"), make("span", {}, format(now.last)));
    return make("div", { class: "map" }, make("h3", { title: short(title, 500) }, title), ...(beside
      ? [make("div", { class: "beside" }, make("ol", { "aria-hidden": "true" }, ...called.map((name) => make("li", {}, name))), canvas, below)] : [canvas, below]));
  }
  function maps() {
    const seeds = now.maps[0].map((each) => each.seed);
    const found = shown().map((i) => ({ i, map: now.maps[i][Math.min(state.seed, now.maps[i].length - 1)] }));
    const cellOf = ({ map }, row, column) => {
      const at = bin(map, row, column), times = map.cells[row * map.width + column];
      return { ...at, times, share: times / ((at.to - at.from) * (at.end - at.first)) };
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
    const draw = (each) => {
      const { map } = each;
      return grid(now.policies[each.i], `Map of clients and rounds for ${short(now.policies[each.i])}: how often clients were chosen.`, map.width, map.height,
        (x, y) => shade(stops, each.share[each.order[y] * map.width + x] / most),
        (x, y) => {
          const cell = cellOf(each, each.order[y], x);
          return [cell, [["times chosen", format(cell.times)], ["share of these rounds", percent(cell.share)]]];
        });
    };
    const binned = found[0] && (found[0].map.clients > found[0].map.height || now.last > found[0].map.width);
    const rows = () => [["policy", "seed", "first_client", "last_client", "first_round", "last_round", "times_chosen", "names"], ...found.flatMap((each) =>
      each.map.cells.map((_, k) => { const cell = cellOf(each, Math.floor(k / each.map.width), k % each.map.width);
        return [now.policies[each.i], each.map.seed, cell.from, cell.to - 1, cell.first + 1, cell.end, cell.times, nameCell(cell.from, cell.to, cell.names)]; }))];
    fill("f-maps", "Clients and rounds", `One line per client${state.order === "often" ? ", the most chosen on top" : `, ${topmost()}`}; rounds go to the right.` + (binned ? " Clients and rounds are grouped." : ""),
      make("div", { class: "tools" }, seeds.length > 1 ? select("Seed", seeds.map(String), Math.min(state.seed, seeds.length - 1), (i) => { state.seed = i; maps(); gone(); }) : null,
        radios("order by", "order", [["number", now.real ? "time of joining" : "number"], ["often", "times chosen"]], state.order, (key) => { state.order = key; maps(); }),
        make("span", { class: "scale" }, "0%", make("i", { style: gradient(stops) }), `${percent(most)} of the rounds or more`),
        csvButton("who was chosen", rows)),
      make("div", { class: found.length > 1 ? "maps" : "maps one" }, ...found.map(draw)));
  }

  function counts() {
    const lines = shown().map((i) => ({ name: now.policies[i], i, x: now.counts[i].percent, y: now.counts[i].mean, half: state.bands ? now.counts[i].half : [] }));
    const xLabel = "clients, least chosen first (%)";
    fill("f-counts", "Times chosen", `${format(now.clients)} clients${seeded() ? ", ranked within each seed" : ""}; a flat line is equal treatment.`,
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
    fill("f-status", "How it ended for the chosen clients", `Share of all selections${seeded() ? " of all seeds" : ""}.`, make("div", { class: "tools" },
      csvButton("answers", () => [["policy", ...used.map(([key]) => key)], ...all.map((i) => [now.policies[i], ...used.map(([key]) => now.status[i][key])])])), bars);
    const timed = all.filter((i) => now.answers[i].mean.length);
    if (!timed.length) return leave("f-answers");
    const lines = timed.map((i) => ({ name: now.policies[i], i, x: now.answers[i].percent, y: now.answers[i].mean, half: [] }));
    const flat = new Set(lines.flatMap((line) => line.y)).size === 1;
    const rounds = timed.filter((i) => now.answers[i].rounds.length).map((i) => [i, now.answers[i].rounds.map(format)]);
    fill("f-answers", "Seconds until an answer in time", flat ? "" : `All answers${seeded() ? " of all seeds" : ""}, the fastest first: at 90, nine of ten answers are at least as fast.`,
      make("div", { class: "tools" }, csvButton("durations", () => longRows("percent_of_answers", "seconds", lines))),
      flat ? make("p", {}, `Every answer took ${format(lines[0].y[0])} s.`)
        : lineChart("Seconds until an answer in time, from the fastest to the slowest", lines, "answers, fastest first (%)", "seconds", 300),
      rounds.length ? simpleTable("Seconds a round", ["seconds a round: median", "90 of 100", "99 of 100"], rounds) : "");
  }
  function there() {
    const metric = now.metrics.find((each) => each.name === "available");
    if (!metric) return leave("f-there");
    let [xLabel, lines] = scaled(metric, "round", shown());
    if (lines.length > 1 && lines.every((line) => String(line.y) === String(lines[0].y))) lines = [{ ...lines[0], name: "all policies" }];
    const wide = Math.max(...metric.lines.map((line) => line.width));
    fill("f-there", "Clients that were there", `Of ${format(now.clients)} clients${now.real ? " that have joined so far" : ""}; the others were away.` + (wide > 1 ? ` Each point is the mean of ${wide} rounds.` : ""),
      make("div", { class: "tools" }, csvButton("clients there", () => longRows("round", "clients_there", lines))),
      lineChart("Clients that were there over rounds", lines, xLabel, "clients", 240));
  }
