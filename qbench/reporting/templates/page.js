// Filter, sort and read charts. The page says everything without this script; it only helps to find it.
"use strict";
for (const report of document.querySelectorAll(".report")) {
  const form = report.querySelector(".filter");
  if (form) {
    const cells = [...report.querySelectorAll("[data-cell]")];
    const rows = cells.filter((cell) => cell.matches("tr"));
    const groups = [...report.querySelectorAll(".backend"), ...report.querySelectorAll(".onemodel")];
    const apply = () => {
      const words = form.elements.text.value.toLowerCase().split(/\s+/).filter(Boolean);
      const outcome = form.elements.outcome.value;
      const active = words.length > 0 || outcome !== "";
      for (const cell of cells) {
        const name = cell.dataset.cell.toLowerCase();
        const fits = (!outcome || cell.dataset.outcome === outcome) && words.every((word) => name.includes(word));
        cell.classList.toggle("dimmed", !fits);
      }
      for (const group of groups) {
        if (active && group instanceof HTMLDetailsElement) group.open = true;
        group.classList.toggle("filtered-out", active && !group.querySelector(".card:not(.dimmed)"));
      }
      form.querySelector("output").textContent = active
        ? rows.filter((row) => !row.classList.contains("dimmed")).length + " of " + rows.length : "";
    };
    form.addEventListener("input", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;
    apply();
  }

  for (const table of report.querySelectorAll(".sortable")) {
    const body = table.tBodies[0];
    table.querySelectorAll("thead th").forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        table.querySelectorAll("[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const keyed = [...body.rows].map((row) => {
          const cell = row.cells[column];
          return { row, key: cell ? cell.dataset.key ?? cell.textContent.trim() : null };
        });
        const numeric = keyed.some(({ row }) => row.cells[column]?.dataset.key !== undefined);
        keyed.sort((a, b) => {
          if (numeric) {
            const [x, y] = [a, b].map(({ row, key }) => row.cells[column]?.dataset.key === undefined ? NaN : Number(key));
            if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y); // cells without numbers stay at the end
            return up ? x - y : y - x;
          }
          return (up ? 1 : -1) * String(a.key).localeCompare(String(b.key));
        });
        body.append(...keyed.map(({ row }) => row));
      });
    });
  }

  const tip = document.getElementById("tip");
  const runs = JSON.parse(report.querySelector(".runs").textContent);
  for (const chart of report.querySelectorAll("svg.trend")) {
    const at = chart.dataset.p.split(" ").map(Number);
    const values = chart.dataset.v.split("|");
    const heights = chart.dataset.y.split(" ").map(Number);
    const [left, right, wide] = [4, 46, 280];
    const x = (run) => left + (runs.length < 2 ? wide - left - right : (run * (wide - left - right)) / (runs.length - 1));
    let cursor = null;
    const leave = () => { tip.hidden = true; cursor?.remove(); cursor = null; };
    chart.addEventListener("pointerleave", leave);
    chart.addEventListener("pointermove", (event) => {
      const box = chart.getBoundingClientRect();
      const place = ((event.clientX - box.left) * wide) / box.width;
      let best = 0;
      at.forEach((run, index) => { if (Math.abs(x(run) - place) < Math.abs(x(at[best]) - place)) best = index; });
      if (!cursor) {
        cursor = document.createElementNS("http://www.w3.org/2000/svg", "circle");
        cursor.setAttribute("class", "cursor");
        cursor.setAttribute("r", "3.2");
        chart.append(cursor);
      }
      cursor.setAttribute("cx", x(at[best]));
      cursor.setAttribute("cy", heights[best]);
      const value = document.createElement("b");
      value.textContent = values[best] + (chart.dataset.u ? " " + chart.dataset.u : "");
      tip.replaceChildren(value, runs[at[best]]);
      tip.hidden = false;
      tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
      tip.style.top = Math.max(8, event.clientY - tip.offsetHeight - 12) + "px";
    });
  }
}
const hint = (box) => {
  const rest = box.scrollWidth - box.clientWidth;
  box.classList.toggle("wide", rest > 1);
  box.classList.toggle("more", rest > 1 && box.scrollLeft < rest - 1);
};
const watch = new ResizeObserver((seen) => seen.forEach(({ target }) => hint(target)));
for (const box of document.querySelectorAll(".scroll")) {
  const words = document.createElement("p");
  words.className = "sideways";
  words.setAttribute("aria-hidden", "true");
  words.textContent = "scroll →";
  box.before(words);
  watch.observe(box);
  hint(box);
  box.addEventListener("scroll", () => hint(box), { passive: true });
}
const unfold = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target instanceof HTMLDetailsElement) target.open = true;
};
addEventListener("hashchange", unfold);
unfold();
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
