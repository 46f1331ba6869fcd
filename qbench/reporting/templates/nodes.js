// The filter finds a row of the heat map by all its words; the chart shows the numbers of the node under the pointer.
const nodeRows = [...document.querySelectorAll(".heat tbody tr")];
for (const row of nodeRows) {
  const name = row.cells[0].textContent.replace(/^suspect \d+ /, "");
  row.dataset.cell = `${row.cells[1].textContent} ${name} ${row.cells[2].textContent}`.replaceAll("|", " ");
  row.dataset.outcome = row.cells[2].textContent.split(", ")[0];
  if (row.classList.contains("suspect")) row.dataset.red = "1";
}
const chart = document.querySelector("svg.nodes");
const tip = document.getElementById("tip");
if (chart) {
  const heads = [...document.querySelectorAll(".heat thead tr:first-child th")].map((head) => head.textContent);
  const wide = chart.viewBox.baseVal.width;
  const [left, right] = [Number(chart.dataset.left), wide - Number(chart.dataset.right)];
  let guide = null;
  const leave = () => { tip.hidden = true; guide?.remove(); guide = null; };
  chart.addEventListener("pointerleave", leave);
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const at = ((event.clientX - box.left) * wide) / box.width;
    const last = nodeRows.length - 1;
    const place = last ? Math.min(last, Math.max(0, Math.round(((at - left) * last) / (right - left)))) : 0;
    const x = last ? left + (place * (right - left)) / last : (left + right) / 2;
    if (!guide) {
      guide = document.createElementNS("http://www.w3.org/2000/svg", "path");
      guide.setAttribute("class", "guide");
      chart.prepend(guide);
    }
    guide.setAttribute("d", `M${x} 0V${chart.viewBox.baseVal.height - 36}`);
    const row = nodeRows[place];
    const name = document.createElement("b");
    name.textContent = row.dataset.cell;
    const known = [3, 4, 5].filter((column) => row.cells[column]?.textContent && heads[column]);
    tip.replaceChildren(name, known.map((column) => `${heads[column]} ${row.cells[column].textContent}`).join(" · "));
    tip.hidden = false;
    tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
    tip.style.top = Math.max(8, event.clientY - tip.offsetHeight - 12) + "px";
  });
}
