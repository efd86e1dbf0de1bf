// The episode browser of a report. Texts reach the page through textContent only, never as HTML.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  if (!$("rows")) return; // a run without episodes

  const PAGE = 25; // rows shown at a time
  const data = JSON.parse($("index").textContent);
  const episodes = data.rows.map((values, number) => {
    const episode = Object.fromEntries(values.map((value, i) => [data.columns[i], value]));
    episode.number = number;
    episode.words = `${episode.id}\n${episode.task}\n${data.categories[episode.category]}`.toLowerCase();
    return episode;
  });

  let shown = episodes; // those that match the filters, sorted
  let page = 0;
  let selected = null;

  /** Make an element: properties, then children (elements or texts). */
  function el(tag, properties, ...children) {
    const node = Object.assign(document.createElement(tag), properties);
    node.append(...children.filter((child) => child !== null));
    return node;
  }

  const plural = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

  // --- embedded data ---------------------------------------------------------------------------

  const unpacked = new Map(); // id of a script -> promise of what it holds
  const packs = new Map(); // image pack number -> base64 texts

  function bytes(base64) {
    return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  }

  function unpack(id) {
    if (!unpacked.has(id)) {
      const stream = new Blob([bytes($(id).textContent)]).stream();
      const text = new Response(stream.pipeThrough(new DecompressionStream("deflate"))).text();
      unpacked.set(id, text.then(JSON.parse));
    }
    return unpacked.get(id);
  }

  async function details(episode) {
    const members = await unpack(`chunk-${Math.floor(episode.number / data.chunk)}`);
    return members[episode.number % data.chunk];
  }

  /** Return the documents a person would have seen, in each turn and at the end; fewer or none where there are not. */
  async function screens(episode) {
    const id = `screens-${Math.floor(episode.number / data.chunk)}`;
    if (!$(id)) return [];
    const { documents, of } = await unpack(id);
    return of[episode.number % data.chunk].map((number) => documents[number]);
  }

  /** Return the data URI of an image, nothing when its file was missing. */
  function imageSource(number) {
    const pack = Math.floor(number / data.imagePack);
    if (!packs.has(pack)) packs.set(pack, $(`images-${pack}`).textContent.split("\n"));
    const content = packs.get(pack)[number % data.imagePack];
    return content ? `data:image/png;base64,${content}` : "";
  }

  // --- filters and list ------------------------------------------------------------------------

  const fields = ["text", "split", "category", "outcome", "sort", "illFormed", "inadmissible"];

  function fill(id, labels, column) {
    const used = new Set(episodes.map((episode) => episode[column]));
    labels.forEach((label, value) => {
      if (used.has(value)) $(id).append(el("option", { value: String(value) }, label));
    });
  }

  function matches(episode) {
    const same = (id) => $(id).value === "" || String(episode[id]) === $(id).value;
    const words = $("text").value.toLowerCase().split(/\s+/).filter(Boolean);
    return same("split") && same("category") && same("outcome")
      && (!$("illFormed").checked || episode.illFormed > 0)
      && (!$("inadmissible").checked || episode.inadmissible > 0)
      && words.every((word) => episode.words.includes(word));
  }

  function sorted(list) {
    const key = $("sort").value.replace("-", "");
    if (!key) return list;
    const sign = $("sort").value.startsWith("-") ? -1 : 1;
    return list.slice().sort((a, b) => sign * (a[key] - b[key]) || a.number - b.number);
  }

  function refresh() {
    shown = sorted(episodes.filter(matches));
    page = 0;
    $("count").textContent = shown.length === episodes.length
      ? plural(shown.length, "episode")
      : `${shown.length.toLocaleString("en")} of ${plural(episodes.length, "episode")}`;
    drawList();
  }

  function turnPage(by) {
    const last = Math.max(0, Math.ceil(shown.length / PAGE) - 1);
    page = Math.min(last, Math.max(0, page + by));
    drawList();
    $("rows").scrollTop = 0;
  }

  function drawList() {
    const pages = Math.max(1, Math.ceil(shown.length / PAGE));
    const from = page * PAGE;
    $("rows").start = from + 1;
    $("rows").replaceChildren(...shown.slice(from, from + PAGE).map(row));
    if (!shown.length) $("rows").append(el("li", { className: "none" }, "No episode matches."));
    $("page").textContent = `page ${page + 1} of ${pages}`;
    $("previous-page").disabled = page === 0;
    $("next-page").disabled = page >= pages - 1;
  }

  function outcomeBadge(episode) {
    const [name, label] = data.outcomes[episode.outcome];
    return el("span", { className: `outcome ${name}`, title: name }, label);
  }

  /** What went wrong in an episode, counted in turns; an action without effect may have been a look around. */
  function counts(episode) {
    const bad = [["illFormed", "ill-formed"], ["cut", "cut off"], ["inadmissible", "inadmissible"]]
      .filter(([key]) => episode[key]).map(([key, label]) => `${episode[key]} ${label}`).join(" · ");
    const idle = episode.ineffective ? `${bad ? " · " : ""}${episode.ineffective} no effect` : "";
    return bad || idle ? el("span", { className: "counts" }, el("span", { className: "bad" }, bad), idle) : null;
  }

  function attemptOf(episode) {
    return episode.attempt ? ` · attempt ${episode.attempt + 1}` : "";
  }

  function row(episode) {
    const link = el("a", { href: address(episode) },
      el("span", { className: "first" }, outcomeBadge(episode),
        el("span", { className: "measure" }, `${plural(episode.turns, "turn")} · ${episode.score.toFixed(2)}`)),
      episode.task ? el("span", { className: "task" }, episode.task) : null,
      el("span", { className: "id" }, episode.id + attemptOf(episode)),
      counts(episode));
    if (episode === selected) link.setAttribute("aria-current", "true");
    return el("li", {}, link);
  }

  // --- one episode -----------------------------------------------------------------------------

  /** The raw reply with its thought and its action told apart; not a character is left out. */
  function reply(text) {
    const parts = el("pre", { className: "reply" });
    let inside = "", from = 0;
    const add = (to, kind) => {
      if (to > from) parts.append(kind ? el("span", { className: kind }, text.slice(from, to)) : text.slice(from, to));
      from = to;
    };
    for (const tag of text.matchAll(/<\s*(\/?)\s*(think|action|search|answer)\s*>/gi)) {
      add(tag.index, inside);
      add(tag.index + tag[0].length, "tag");
      inside = tag[1] ? "" : tag[2].toLowerCase() === "think" ? "think" : "action";
    }
    add(text.length, inside);
    return parts;
  }

  function seen(observation, where) {
    const images = observation.images.map((number) => {
      const source = imageSource(number);
      return source
        ? el("img", { src: source, alt: `What the agent saw ${where}` })
        : el("span", { className: "flag bad" }, "image missing or altered");
    });
    return el("div", { className: "seen" }, images.length ? el("div", { className: "images" }, ...images) : null,
      observation.text ? el("pre", {}, observation.text) : null);
  }

  /** A button that opens a document in a frame in which nothing can run, and closes it again. */
  function screen(content, where) {
    if (!content) return null;
    const box = el("div", { className: "screen" });
    const button = el("button", { type: "button", ariaExpanded: "false" }, "Show the page");
    button.addEventListener("click", () => {
      const open = button.ariaExpanded === "true";
      if (open) {
        box.querySelector("iframe").remove();
      } else {
        const frame = el("iframe", { title: `The page ${where}` });
        frame.setAttribute("sandbox", "");
        frame.srcdoc = content;
        box.append(frame);
      }
      button.ariaExpanded = String(!open);
      button.textContent = open ? "Show the page" : "Hide the page";
    });
    box.append(button);
    return box;
  }

  function flags(turn) {
    const found = [[!turn.wellFormed, "ill-formed"], [turn.cut, "reply cut off"],
      [turn.admissible === false, "inadmissible"], [turn.effective === false, "no effect"]];
    const marks = found.filter(([is]) => is).map(([, label]) =>
      el("span", { className: label === "no effect" ? "flag" : "flag bad" }, label));
    const why = [turn.form, turn.reason].filter(Boolean).join("; ");
    return why ? [...marks, el("span", { className: "reason" }, why)] : marks;
  }

  function drawTurn(turn, i, page) {
    const scripted = turn.reply === turn.action; // a scripted policy replies with the action itself
    const tokens = turn.tokens === null ? null : el("span", {}, plural(turn.tokens, "token"));
    return el("li", { className: "turn" },
      el("h4", {}, `Turn ${i + 1}`),
      seen(turn.seen, `in turn ${i + 1}`),
      screen(page, `in turn ${i + 1}`),
      scripted ? null : reply(turn.reply),
      el("p", { className: "acted" },
        turn.action ? el("code", {}, turn.action) : el("em", {}, "no action"),
        ...flags(turn),
        el("span", { className: turn.reward > 0 ? "reward some" : "reward" }, `reward ${turn.reward}`), tokens));
  }

  function heading(episode, found) {
    const at = shown.indexOf(episode);
    const facts = [data.splits[episode.split], data.categories[episode.category], `attempt ${episode.attempt + 1}`,
      plural(episode.turns, "turn"), `score ${episode.score.toFixed(3)}`, `seed ${found.seed}`];
    const step = (label, by) => {
      const to = shown[at + by];
      const button = el("button", { type: "button", disabled: at < 0 || !to }, label);
      button.addEventListener("click", () => move(by));
      return button;
    };
    return el("header", {},
      el("nav", { ariaLabel: "Neighbouring episodes" }, step("Previous episode", -1), step("Next episode", 1),
        el("a", { href: "#episodes", className: "back" }, "Back to the list")),
      el("h3", {}, episode.id),
      el("p", { className: "about" }, outcomeBadge(episode), ...facts.map((fact) => ` · ${fact}`)),
      found.error === null ? null : el("p", { className: "warning" }, el("strong", {}, "It broke. "), found.error));
  }

  async function drawEpisode(episode) {
    let parts;
    try {
      const [found, pages] = await Promise.all([details(episode), screens(episode)]);
      const end = found.final === null
        ? el("p", { className: "note" }, "Nothing was seen after the last action.")
        : seen(found.final, "at the end");
      parts = [heading(episode, found), el("ol", { className: "turns" }, ...found.turns.map((turn, i) => drawTurn(turn, i, pages[i])),
        el("li", { className: "turn end" }, el("h4", {}, "End"), end, screen(pages[found.turns.length], "at the end")))];
    } catch (error) {
      parts = [el("p", { className: "warning" }, "This episode cannot be unpacked here: it needs a browser of 2023 "
        + `or later (DecompressionStream). It is in trajectories.jsonl. ${error}`)];
    }
    if (episode === selected) $("episode").replaceChildren(...parts); // else another was chosen meanwhile
  }

  // --- selection and deep links ----------------------------------------------------------------

  function address(episode) {
    const parameters = new URLSearchParams({ episode: episode.id, split: data.splits[episode.split] });
    if (episode.attempt) parameters.set("attempt", episode.attempt);
    return `#${parameters}`;
  }

  /** Find the episode a link names; split and attempt may be left out. */
  function addressed() {
    const parameters = new URLSearchParams(location.hash.slice(1));
    const attempt = Number(parameters.get("attempt") ?? 0);
    return episodes.find((episode) => episode.id === parameters.get("episode") && episode.attempt === attempt
      && (parameters.get("split") ?? data.splits[episode.split]) === data.splits[episode.split]);
  }

  /** Show an episode; `scroll` brings its beginning into view. */
  function select(episode, scroll) {
    selected = episode;
    const at = shown.indexOf(episode);
    if (at >= 0) page = Math.floor(at / PAGE);
    drawList();
    const current = $("rows").querySelector("[aria-current]");
    if (current) scrollWithin($("rows"), current);
    return drawEpisode(episode).then(() => {
      const top = $("episode").getBoundingClientRect().top;
      if (scroll === "always" || (scroll && (top < 0 || top > innerHeight / 2))) $("episode").scrollIntoView();
    });
  }

  function scrollWithin(box, node) {
    const outer = box.getBoundingClientRect(), inner = node.getBoundingClientRect();
    if (inner.top < outer.top) box.scrollTop -= outer.top - inner.top;
    else if (inner.bottom > outer.bottom) box.scrollTop += inner.bottom - outer.bottom;
  }

  /** Go to a neighbour in the list as it is filtered and sorted. */
  function move(by) {
    const at = shown.indexOf(selected);
    const next = shown[at < 0 ? 0 : at + by];
    if (!next || next === selected) return;
    history.replaceState(null, "", address(next)); // a key held down leaves no history behind
    select(next, true);
  }

  // --- keys and events -------------------------------------------------------------------------

  const KEYS = {
    j: () => move(1), ArrowRight: () => move(1), k: () => move(-1), ArrowLeft: () => move(-1),
    n: () => turnPage(1), p: () => turnPage(-1),
    "/": () => { $("text").focus(); $("text").select(); },
    "?": () => $("help").showModal(),
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
    if (event.target.matches("input, select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (Object.hasOwn(KEYS, event.key)) {
      event.preventDefault();
      KEYS[event.key]();
    }
  });

  for (const id of fields) $(id).addEventListener("input", refresh);
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("previous-page").addEventListener("click", () => turnPage(-1));
  $("next-page").addEventListener("click", () => turnPage(1));
  addEventListener("hashchange", () => {
    const episode = addressed();
    if (episode) select(episode, "always");
  });

  // Paper cannot be clicked: everything folded is open while it prints.
  const folded = () => document.querySelectorAll("details");
  addEventListener("beforeprint", () => folded().forEach((node) => { node.dataset.was = node.open; node.open = true; }));
  addEventListener("afterprint", () => folded().forEach((node) => { node.open = node.dataset.was === "true"; }));

  fill("split", data.splits, "split");
  fill("category", data.categories, "category");
  fill("outcome", data.outcomes.map(([, label]) => label), "outcome");
  const first = addressed();
  refresh();
  select(first ?? episodes[0], first ? "always" : false);
})();
