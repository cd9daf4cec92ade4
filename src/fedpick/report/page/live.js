  // Ask for news once a second; the server answers with a page's worth only if something has changed.
  const by = (id) => document.getElementById(id), parser = new DOMParser(), kept = {};
  const sign = by("state"), since = by("since");
  let state = sign.firstElementChild.textContent, tag = "", changed = Number(sign.dataset.changed), failed = 0;
  const ago = (seconds) => (seconds < 90 ? `${Math.max(0, Math.round(seconds))} s` : seconds < 5400 ? `${Math.round(seconds / 60)} min`
    : `${Math.round(seconds / 3600)} hours`);
  function clock() {
    const text = failed > 2 ? "The server does not answer: this is the last state that it sent."
      : changed ? `Last written ${ago(Date.now() / 1000 - changed)} ago.` : "";
    if (since.textContent !== text) since.textContent = text;
    const word = failed > 2 ? "no contact" : state;
    if (sign.firstElementChild.textContent !== word) sign.firstElementChild.textContent = word;
  }
  function renew(news) {
    for (const [id, html] of Object.entries(news.sections)) {
      if (kept[id] === html) continue;
      kept[id] = html;
      const old = by(id), fresh = document.adoptNode(parser.parseFromString(html, "text/html").getElementById(id));
      const scrolled = old.querySelector(".tall")?.scrollTop || 0;
      old.replaceWith(fresh);
      if (scrolled) fresh.querySelector(".tall").scrollTop = scrolled;
    }
    if (by("title").textContent !== news.title) by("title").textContent = news.title;
    document.title = `fedpick: ${news.state}: ${news.title.slice(0, 100)}`;
    state = news.state;
    sign.className = `dot ${news.state}`;
    changed = news.changed;
    document.dispatchEvent(new CustomEvent("fedpick-news", { detail: news.data }));
  }
  async function ask() {
    try {
      const answer = await fetch("news.json", { headers: tag ? { "If-None-Match": tag } : {} });
      if (answer.status === 200) {
        renew(await answer.json());
        tag = answer.headers.get("ETag");
      }
      failed = answer.ok || answer.status === 304 ? 0 : failed + 1;
    } catch { failed++; }
    sign.classList.toggle("lost", failed > 2);
    clock();
    setTimeout(ask, failed > 2 ? 5000 : document.hidden ? 3000 : 1000);
  }
  clock();
  ask();
