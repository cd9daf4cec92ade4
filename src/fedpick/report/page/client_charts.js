
  // ---- what became of the clients: by class, by accuracy, by what was promised
  const CLASS_SCORES = [["chosen", "times chosen"], ["accuracy", "accuracy at the end"]];
  // Read by hand or by keys: `read(k, speak)` shows the k-th of `count` things.
  function readable(svg, count, read, off, near) {
    let cursor = -1;
    const leaveIt = () => { off(); hide(); cursor = -1; };
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
      const k = near((event.clientX - box.left) * scale, (event.clientY - box.top) * scale);
      if (k === null) return leaveIt();
      cursor = k;
      read(k, false);
    });
    svg.addEventListener("pointerleave", leaveIt);
    svg.addEventListener("blur", leaveIt);
    svg.addEventListener("keydown", (event) => {
      const jump = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, PageUp: -10, PageDown: 10, Home: -count, End: count }[event.key];
      if (event.key === "Escape") leaveIt();
      if (jump === undefined || !count) return;
      event.preventDefault();
      cursor = Math.max(0, Math.min(count - 1, cursor + jump));
      read(cursor, true);
    });
    return svg;
  }
  const onScreen = (svg, x, y) => {
    const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
    return [box.left + x * scale, box.top + y * scale];
  };
  const nearestOf = (points, x, y, most) => {
    let best = null, least = most * most;
    points.forEach(([a, b], k) => { const d = (a - x) ** 2 + (b - y) ** 2; if (d < least) { least = d; best = k; } });
    return best;
  };

  // A row of dots for each group, one dot for each policy.
  function dots(about, groups, xLabel, width) {
    const narrow = width < 560, all = groups.flatMap((group) => group.points);
    if (!all.length) return make("p", { class: "hint" }, "No policy is shown.");
    const low = Math.min(...all.map((p) => p.mean - p.half)), high = Math.max(...all.map((p) => p.mean + p.half));
    const from = low < 0.4 * high ? 0 : Math.max(0, low - 0.08 * (high - low)), to = high > from ? high + 0.03 * (high - from) : from + 1;
    const longest = Math.max(...groups.map((group) => group.name.length));
    const left = narrow ? 8 : Math.min(300, 16 + 6.6 * longest), right = 16, above = narrow ? 20 : 6;
    const step = Math.max(7, Math.min(12, 60 / groups[0].points.length)), tall = above + step * (groups[0].points.length + 0.6);
    const top = 4, bottom = 40, height = top + tall * groups.length + bottom;
    const X = (v) => left + (v - from) / (to - from) * (width - left - right);
    const svg = make("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: 0, "aria-label": `${about}. ${groups.map((group) =>
      `${group.name}: ${group.points.map((p) => `${short(p.name)} ${format(p.mean)}`).join(", ")}`).join("; ")}. Up and down arrows read the groups.` });
    const marked = make("rect", { class: "marked", x: 0, width: width - right, height: tall, visibility: "hidden" });
    svg.append(marked);
    for (const each of ticks(from, to, Math.max(4, (width - left) / 90))) svg.append(make("line", { class: "grid", x1: X(each), x2: X(each), y1: top, y2: height - bottom }),
      make("text", { x: X(each), y: height - bottom + 18, "text-anchor": "middle" }, format(each)));
    svg.append(make("text", { x: (left + width - right) / 2, y: height - 5, "text-anchor": "middle" }, xLabel));
    groups.forEach((group, g) => {
      const y0 = top + g * tall;
      svg.append(make("line", { class: "grid", x1: 0, x2: width - right, y1: y0, y2: y0 }),
        narrow ? make("text", { class: "strong", x: left, y: y0 + 15 }, group.name)
          : make("text", { class: "strong", x: left - 12, y: y0 + tall / 2 + 4, "text-anchor": "end" }, short(group.name, 42)));
      group.points.forEach((p, k) => {
        const y = y0 + above + step * (k + 0.8);
        if (p.half) svg.append(make("line", { x1: X(Math.max(from, p.mean - p.half)), x2: X(p.mean + p.half), y1: y, y2: y, stroke: colour(p.i), "stroke-width": 2, opacity: 0.55 }));
        svg.append(make("circle", { cx: X(p.mean), cy: y, r: Math.min(4.5, step / 2), fill: colour(p.i) }));
      });
    });
    const read = (g, speak) => {
      marked.setAttribute("y", top + g * tall);
      marked.setAttribute("visibility", "visible");
      const [x, y] = onScreen(svg, left + 20, top + (g + 1) * tall);
      show(x, y, `${groups[g].name} (${format(groups[g].clients)} clients)`, groups[g].points.map((p) => [p.name, format(p.mean) + (p.half ? ` ±${roughly(p.half)}` : ""), p.i]), speak);
    };
    return readable(svg, groups.length, read, () => marked.setAttribute("visibility", "hidden"), (x, y) => {
      const g = Math.floor((y - top) / tall);
      return g >= 0 && g < groups.length ? g : null;
    });
  }
  function classes() {
    if (!now.classes.length) return leave("f-classes");
    const kind = now.classes[Math.min(state.kind, now.classes.length - 1)];
    const ways = CLASS_SCORES.filter(([key]) => kind.rows.every((row) => row[key]));
    const key = ways.some(([each]) => each === state.scoreOf) ? state.scoreOf : "chosen", label = ways.find(([each]) => each === key)[1];
    const groups = kind.groups.map((name, g) => ({ name, clients: kind.clients[g], points: shown().map((i) =>
      ({ i, name: now.policies[i], mean: kind.rows[i][key].mean[g], half: (state.bands && kind.rows[i][key].half[g]) || 0 })) }));
    fill("f-classes", "By class of client", `Mean over the clients of a class${kind.rows.some((row) => row[key].half.length) ? "; lines are 95% intervals over seeds" : ""}.`,
      make("div", { class: "tools" }, select("Classes by", now.classes.map((each) => each.label), now.classes.indexOf(kind), (i) => { state.kind = i; classes(); }),
        ways.length > 1 ? radios("show", "score-of", ways, key, (way) => { state.scoreOf = way; classes(); }) : null,
        csvButton("classes", () => [["class", "clients", "policy", label.replaceAll(" ", "_"), "half_width_of_95%_interval"],
          ...groups.flatMap((group) => group.points.map((p) => [group.name, group.clients, p.name, p.mean, p.half || null]))])),
      drawing((width) => dots(`${label} by ${kind.label}`, groups, key === "chosen" ? "times chosen, per client" : label, width)));
  }

  function accuracies() {
    const lines = shown().filter((i) => now.accuracies[i]).map((i) => ({ name: now.policies[i], i, x: now.accuracies[i].percent, y: now.accuracies[i].mean, half: state.bands ? now.accuracies[i].half : [] }));
    if (!now.accuracies.some((each) => each)) return leave("f-accuracies");
    fill("f-accuracies", "Accuracy of each client", `The final model on each client's own examples${seeded() ? "; clients are ranked within each seed" : ""}.`,
      make("div", { class: "tools" }, csvButton("accuracy of clients", () => longRows("percent_of_clients", "accuracy", lines))),
      lineChart("Accuracy of the final model, from the worst to the best client", lines, "clients, worst first (%)", "accuracy", 330, { from: 0, to: 10, text: "worst tenth" }));
  }

  function stated() {
    if (!now.stated.some((each) => each)) return leave("f-stated");
    const points = shown().filter((i) => now.stated[i]).flatMap((i) => now.stated[i].bin.map((at, k) => ({ i, from: edge(at, now.stated[i].bins, now.clients), to: edge(at + 1, now.stated[i].bins, now.clients), names: now.stated[i].names,
      x: now.stated[i].stated[k], y: now.stated[i].observed[k], times: now.stated[i].times[k] }))).sort((a, b) => a.x - b.x || a.y - b.y);
    const silent = now.policies.filter((_, i) => !now.stated[i]).length;
    const grouped = now.stated.some((each) => each && each.bins < now.clients);
    fill("f-stated", "Stated against observed", `A point is ${grouped ? "a group of clients" : "a client"}${seeded() ? ", all seeds together" : ""}: the probability with which the policy states that it chooses it, and how often it was chosen in rounds when it was there. On the line, both agree.`
      + (silent ? ` ${silent === 1 ? "One policy states" : `${silent} policies state`} no probability.` : ""),
      make("div", { class: "tools" }, csvButton("stated probabilities", () => [["policy", "first_client", "last_client", "stated", "observed", "times_chosen", "names"],
        ...points.map((p) => [now.policies[p.i], p.from, p.to - 1, p.x, p.y, p.times, nameCell(p.from, p.to, p.names)])])),
      drawing((width) => scatter(points, width)));
  }
  function scatter(points, width) {
    if (!points.length) return make("p", { class: "hint" }, "No policy that is shown states a probability.");
    const height = width < 500 ? 270 : 330, most = 1.05 * Math.max(...points.flatMap((p) => [p.x, p.y]));
    const yTicks = ticks(0, most, height / 60), left = 14 + 7.2 * Math.max(...yTicks.map((each) => format(each).length)), right = 14, top = 22, bottom = 40;
    const X = (v) => left + v / most * (width - left - right), Y = (v) => height - bottom - v / most * (height - top - bottom);
    const svg = make("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: 0,
      "aria-label": `Stated probability against observed share, ${format(points.length)} points. Left and right arrows read them.` });
    for (const each of yTicks) svg.append(make("line", { class: "grid", x1: left, x2: width - right, y1: Y(each), y2: Y(each) }), make("text", { x: left - 7, y: Y(each) + 4, "text-anchor": "end" }, format(each)));
    for (const each of ticks(0, most, Math.max(4, width / 90))) svg.append(make("text", { x: X(each), y: height - bottom + 18, "text-anchor": "middle" }, format(each)));
    svg.append(make("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }), make("line", { class: "cross", x1: X(0), y1: Y(0), x2: X(most), y2: Y(most) }),
      make("text", { x: (left + width - right) / 2, y: height - 5, "text-anchor": "middle" }, "probability stated by the policy"), make("text", { x: 2, y: 13 }, "share of rounds chosen, when there"));
    for (const p of points) svg.append(make("circle", { cx: X(p.x), cy: Y(p.y), r: 3.5, fill: colour(p.i), opacity: 0.6 }));
    const ring = make("circle", { r: 7, fill: "none", stroke: "var(--ink)", "stroke-width": 2, visibility: "hidden" });
    svg.append(ring);
    const at = points.map((p) => [X(p.x), Y(p.y)]);
    const read = (k, speak) => {
      const p = points[k];
      ring.setAttribute("cx", at[k][0]);
      ring.setAttribute("cy", at[k][1]);
      ring.setAttribute("visibility", "visible");
      show(...onScreen(svg, ...at[k]), whom(p.from, p.to, p.names), [[now.policies[p.i], "", p.i], ["stated", format(p.x)], ["observed", format(p.y)], ["times chosen", format(p.times)]], speak);
    };
    return readable(svg, points.length, read, () => ring.setAttribute("visibility", "hidden"), (x, y) => nearestOf(at, x, y, 24));
  }

  // ---- FedGS's graph
  function graphs() {
    const found = shown().filter((i) => now.graphs[i]);
    if (!found.length) return leave("f-graphs");
    const stops = heat(), most = Math.max(1, ...found.flatMap((i) => now.graphs[i].times));
    fill("f-graphs", "FedGS's graph of the clients", `Clients with similar data are close, as far as a plane allows; each is joined with its three nearest.${now.graphs[found[0]].label.length ? " Numbers are the most frequent label." : ""} Seed ${now.graphs[found[0]].seed}.`,
      make("div", { class: "tools" }, make("span", { class: "scale" }, "never chosen", make("i", { style: gradient(stops) }), `${format(most)} times`),
        csvButton("graph", () => [["policy", "client", "x", "y", "times_chosen", "most_frequent_label"], ...found.flatMap((i) => { const g = now.graphs[i];
          return g.client.map((client, k) => [now.policies[i], client, g.x[k], g.y[k], g.times[k], g.label[k]]); })])),
      ...found.map((i) => drawing((width) => net(i, stops, most, width))));
  }
  function net(i, stops, most, width) {
    const g = now.graphs[i], height = Math.min(440, Math.max(280, width * 0.6)), pad = 16;
    const at = g.client.map((_, k) => [pad + g.x[k] * (width - 2 * pad), pad + g.y[k] * (height - 2 * pad)]);
    const svg = make("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: 0,
      "aria-label": `Graph of ${g.client.length} clients of ${short(now.policies[i])}. Arrow keys read the clients.` });
    for (const [a, b] of g.links) svg.append(make("line", { class: "link", x1: at[a][0], y1: at[a][1], x2: at[b][0], y2: at[b][1] }));
    const size = g.client.length > 120 ? 5 : 9;
    g.client.forEach((_, k) => {
      const fill = shade(stops, g.times[k] / most), paint = `rgb(${fill.join(" ")})`;
      const [r, green, b] = fill.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
      const ink = 0.2126 * r + 0.7152 * green + 0.0722 * b > 0.179 ? "#000" : "#fff";  // whichever has more contrast
      svg.append(make("g", { style: `background-color:${paint}` }, make("circle", { class: "node", cx: at[k][0], cy: at[k][1], r: size, fill: paint }),
        g.label.length && size > 5 ? make("text", { class: "inside", x: at[k][0], y: at[k][1] + 3.5, style: `fill:${ink}` }, String(g.label[k])) : null));
    });
    const ring = make("circle", { r: size + 4, fill: "none", stroke: "var(--ink)", "stroke-width": 2, visibility: "hidden" });
    svg.append(ring);
    const read = (k, speak) => {
      ring.setAttribute("cx", at[k][0]);
      ring.setAttribute("cy", at[k][1]);
      ring.setAttribute("visibility", "visible");
      show(...onScreen(svg, ...at[k]), `client ${format(g.client[k])}`, [["times chosen", format(g.times[k])], ...(g.label.length ? [["most frequent label", String(g.label[k])]] : [])], speak);
    };
    return readable(svg, g.client.length, read, () => ring.setAttribute("visibility", "hidden"), (x, y) => nearestOf(at, x, y, 24));
  }

  // ---- who was away when
  const UNKNOWN = 255;  // in a map of shares, which are 0 to 254
  function gone() {
    const map = now.away;
    if (!map) return leave("f-gone");
    const ids = new Map();  // one map for all policies that met the same
    for (const i of shown()) { const of = map.of[i][Math.min(state.seed, map.of[i].length - 1)]; ids.set(of, [...(ids.get(of) || []), i]); }
    const stops = heat(), seed = now.maps[0][Math.min(state.seed, now.maps[0].length - 1)].seed;
    const found = [...ids].map(([id, who]) => ({ ...map.maps[id], cells: Uint8Array.from(atob(map.maps[id].cells), (c) => c.charCodeAt(0)),
      name: who.length === shown().length && who.length > 1 ? "all policies" : who.map((i) => short(now.policies[i])).join(", ") }));
    const binned = found.some((each) => each.clients > each.height || now.last > each.width), unknown = found.some((each) => each.cells.includes(UNKNOWN));
    const empty = getComputedStyle(document.documentElement).getPropertyValue("--blank").trim(), blank = [1, 3, 5].map((k) => parseInt(empty.slice(k, k + 2), 16));
    const share = (v) => (v === UNKNOWN ? null : v / (UNKNOWN - 1));
    fill("f-gone", "Who was away when", `One line per client, ${topmost()}; rounds go to the right.` + (now.real ? "" : ` Seed ${seed}.`) + (binned ? " Clients and rounds are grouped." : ""),
      make("div", { class: "tools" }, make("span", { class: "scale" }, "there", make("i", { style: gradient(stops) }), "away"),
        unknown ? make("span", { class: "scale" }, make("i", { class: "empty" }), now.real ? "not joined yet, or not recorded" : "not recorded") : null,
        csvButton("who was away", () => [["policies", "first_client", "last_client", "first_round", "last_round", "share_away", "names"], ...found.flatMap((each) => [...each.cells].map((v, k) => {
          const at = bin(each, Math.floor(k / each.width), k % each.width);
          return [each.name, at.from, at.to - 1, at.first + 1, at.end, v === UNKNOWN ? null : +share(v).toFixed(3), nameCell(at.from, at.to, at.names)]; }))])),
      make("div", { class: found.length > 1 ? "maps" : "maps one" }, ...found.map((each) => grid(each.name, `Map of clients and rounds for ${each.name}: who was away.`, each.width, each.height,
        (x, y) => { const v = each.cells[y * each.width + x]; return v === UNKNOWN ? blank : shade(stops, share(v)); },
        (x, y) => { const v = each.cells[y * each.width + x]; return [bin(each, y, x), [["away", v === UNKNOWN ? "not known" : percent(share(v))]]]; }))));
  }
