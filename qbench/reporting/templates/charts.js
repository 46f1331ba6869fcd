// Shows the value and the run under the pointer; the description of each chart has the same numbers. A large chart has
// all points, which lead to their commits, and a table of them.
const tip = document.getElementById("tip");
const runs = [];
for (const line of tip.dataset.runs.split("|")) {
  const before = runs.at(-1)?.split(" ");
  runs.push(line.split(" ").map((word, place) => word || before[place]).join(" "));
}
const made = (name, attributes, ...inside) => {
  const part = document.createElementNS(name === "a" || name === "circle" ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml", name);
  for (const [key, value] of Object.entries(attributes)) part.setAttribute(key, value);
  part.append(...inside);
  return part;
};
const commitOf = (run) => runs[run].split(" ").find((word) => /^[0-9a-f]{7,}$/.test(word));
const addressOf = (run) => tip.dataset.commit && commitOf(run) && tip.dataset.commit.replace("000000000", commitOf(run));
for (const chart of document.querySelectorAll("svg.trend")) {
  const points = chart.dataset.values.split("|").flatMap((stretch) => {
    const [, first, more, height, words] = stretch.match(/(\d+)\+(\d+)@([^=]+)=(.*)/);
    const [value, ...others] = words.split("~");
    return Array.from({ length: Number(more) + 1 }, (_, index) => ({ run: Number(first) + index, height, value, others }));
  });
  const [left, right, wide] = [34, 58, 280];
  const x = (run) => left + (runs.length < 2 ? wide - left - right : (run * (wide - left - right)) / (runs.length - 1));
  let cursor = null;
  const leave = () => { tip.hidden = true; cursor?.remove(); cursor = null; };
  chart.addEventListener("pointerleave", leave);
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const place = ((event.clientX - box.left) * wide) / box.width;
    const far = (point) => Math.abs(x(point.run) - place);
    const best = points.reduce((a, b) => (far(b) < far(a) ? b : a));
    if (!cursor) {
      cursor = made("circle", { class: "cursor", r: 3.2 });
      chart.append(cursor);
    }
    cursor.setAttribute("cx", x(best.run));
    cursor.setAttribute("cy", best.height);
    tip.replaceChildren(made("b", {}, best.value), ...best.others.map((line) => made("div", {}, line)), runs[best.run]);
    tip.hidden = false;
    tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
    tip.style.top = Math.max(8, event.clientY - tip.offsetHeight - 12) + "px";
  });
  const fold = chart.closest("details");
  const enlarge = () => {
    if (!fold.open || fold.querySelector("table")) return;
    for (const point of points) {
      const dot = made("circle", { class: "point", cx: x(point.run), cy: point.height });
      const address = addressOf(point.run);
      chart.append(address ? made("a", { href: address, "aria-label": commitOf(point.run) }, dot) : dot);
    }
    const label = chart.querySelector(".axis-label");
    const days = runs.map((run) => run.slice(0, 10));
    for (let eighth = 2; eighth < 7 && runs.length > 16; eighth++) {
      const run = Math.round((eighth * (runs.length - 1)) / 8);
      if (eighth === 4 || !/^\d{4}-\d\d-\d\d$/.test(days[run])) continue;
      const more = label.firstChild.cloneNode();
      more.setAttribute("x", x(run));
      more.setAttribute("text-anchor", "middle");
      more.setAttribute("class", "more");
      more.textContent = days[run].slice(5);
      label.append(more);
    }
    const rows = points.toReversed().map((point) => {
      const name = document.createElement("td");
      const address = addressOf(point.run);
      if (address) {
        const link = document.createElement("a");
        link.href = address;
        link.textContent = runs[point.run];
        name.append(link);
      } else name.textContent = runs[point.run];
      return made("tr", {}, name, made("td", { class: "num strong" }, point.value), made("td", {}, point.others.join(", ")));
    });
    const head = made("tr", {}, made("th", {}, "Run"), made("th", { class: "num" }, "Value"), made("th", {}, "Interval, runs"));
    fold.append(made("div", { class: "values", tabindex: 0 }, made("table", {}, made("thead", {}, head), made("tbody", {}, ...rows))));
  };
  fold.addEventListener("toggle", enlarge);
  fold.addEventListener("keydown", (event) => { if (event.key === "Escape") fold.open = false; });
  enlarge();
}
