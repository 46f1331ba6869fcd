// Shows the value and the run under the pointer; the description of each chart has the same numbers.
const tip = document.getElementById("tip");
const runs = [];
for (const line of tip.dataset.runs.split("|")) {
  const before = runs.at(-1)?.split(" ");
  runs.push(line.split(" ").map((word, place) => word || before[place]).join(" "));
}
for (const chart of document.querySelectorAll("svg.trend")) {
  const points = chart.dataset.values.split("|").flatMap((stretch) => {
    const [, first, more, height, value] = stretch.match(/(\d+)\+(\d+)@([^=]+)=(.*)/);
    return Array.from({ length: Number(more) + 1 }, (_, index) => ({ run: Number(first) + index, height, value }));
  });
  const [left, right, wide] = [4, 58, 280];
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
      cursor = document.createElementNS("http://www.w3.org/2000/svg", "circle");
      cursor.setAttribute("class", "cursor");
      cursor.setAttribute("r", "3.2");
      chart.append(cursor);
    }
    cursor.setAttribute("cx", x(best.run));
    cursor.setAttribute("cy", best.height);
    const value = document.createElement("b");
    value.textContent = best.value;
    tip.replaceChildren(value, runs[best.run]);
    tip.hidden = false;
    tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
    tip.style.top = Math.max(8, event.clientY - tip.offsetHeight - 12) + "px";
  });
}
