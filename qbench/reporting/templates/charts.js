// The value and the run under the pointer; the same stands in the description of each chart.
const tip = document.getElementById("tip");
const runs = JSON.parse(document.getElementById("runs").textContent);
for (const chart of document.querySelectorAll("svg.trend")) {
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
