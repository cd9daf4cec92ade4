  const redraw = () => { hide(); gaps(); curves(); maps(); counts(); fair(); classes(); accuracies(); stated(); graphs(); answers(); there(); gone(); };

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
    if (now) { maps(); gone(); graphs(); }
  });
  dark.addEventListener("change", () => { paint(); if (now) { maps(); gone(); graphs(); } });
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
