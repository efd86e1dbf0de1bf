// Filters and sorting of the leaderboard. Without it everything is shown, in the order of the ranks.
"use strict";
(() => {
  const form = document.getElementById("filters");
  if (!form) return;
  const selects = [...form.querySelectorAll("select")];
  const blocks = [...document.querySelectorAll(".contest, .published")];

  /** Whether a node has what a filter asks for; what it does not say, it does not fail. */
  function fits(node, select) {
    const said = node.dataset[select.name];
    return select.value === "" || said === undefined || JSON.parse(said).includes(select.value);
  }

  function refresh() {
    let rows = 0, shown = 0;
    for (const block of blocks) {
      const whole = selects.every((select) => fits(block, select));
      let some = false;
      for (const row of block.querySelectorAll("[data-model]")) {
        row.hidden = !(whole && selects.every((select) => fits(row, select)));
        some ||= !row.hidden;
        if (block.matches(".contest")) {
          rows += 1;
          shown += row.hidden ? 0 : 1;
        }
      }
      block.hidden = !(whole && some);
    }
    for (const part of document.querySelectorAll(".part")) {
      part.hidden = ![...part.querySelectorAll(".contest, .published")].some((block) => !block.hidden);
    }
    document.getElementById("count").textContent = `${shown} of ${rows} measured row${rows === 1 ? "" : "s"}`;
  }

  /** Sort the rows of one table; what has no value comes last either way, and equals keep the order of their ranks. */
  function sort(header) {
    const table = header.closest("table");
    const column = [...header.parentElement.children].indexOf(header);
    const first = header.dataset.first; // "descending" where more is better
    const other = first === "ascending" ? "descending" : "ascending";
    const direction = header.getAttribute("aria-sort") === first ? other : first;
    for (const cell of header.parentElement.children) cell.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", direction);
    const sign = direction === "ascending" ? 1 : -1;
    const value = (body) => body.rows[0].children[column].dataset.value;
    const order = (a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === "" || y === "") return (x === "") - (y === "");
      const by = Number.isNaN(Number(x)) ? x.localeCompare(y, "en") : Number(x) - Number(y);
      return sign * by || Number(a.dataset.place) - Number(b.dataset.place);
    };
    table.append(...[...table.tBodies].sort(order));
  }

  /** Open what the address names, and show it even where a filter would hide it. */
  function open() {
    const target = location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
    if (!target) return;
    if (target.hidden || target.closest("[hidden]")) {
      form.reset();
      refresh();
    }
    for (const node of target.querySelectorAll(".detail > td > details")) node.open = true;
    target.closest("details")?.setAttribute("open", "");
    target.scrollIntoView();
  }

  form.hidden = false;
  form.addEventListener("input", refresh);
  form.addEventListener("reset", () => setTimeout(refresh));
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const button of document.querySelectorAll(".board thead button")) {
    button.addEventListener("click", () => sort(button.closest("th")));
  }
  addEventListener("hashchange", open);
  const folded = () => document.querySelectorAll("details");
  addEventListener("beforeprint", () => folded().forEach((node) => { node.dataset.was = node.open; node.open = true; }));
  addEventListener("afterprint", () => folded().forEach((node) => { node.open = node.dataset.was === "true"; }));
  refresh();
  open();
})();
