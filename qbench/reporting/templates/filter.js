// Filter and sort. The page says everything without this script; it only helps to find it.
const form = document.querySelector(".filter");
if (form) {
  const cells = [...document.querySelectorAll("[data-cell]")];
  const all = new Set(cells.map((cell) => cell.dataset.cell)).size;
  const groups = [...document.querySelectorAll("[data-group]")].reverse(); // the inner ones first
  const apply = () => {
    const words = form.elements.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const outcome = form.elements.outcome.value;
    const active = words.length > 0 || outcome !== "";
    const found = new Set();
    for (const cell of cells) {
      const name = cell.dataset.cell.toLowerCase();
      const ended = !outcome || (outcome === "red" ? "red" in cell.dataset : cell.dataset.outcome === outcome);
      const fits = ended && words.every((word) => name.includes(word));
      if (fits) found.add(name);
      cell.classList.toggle("dimmed", !fits);
    }
    for (const group of groups) {
      const empty = active && !group.querySelector("[data-cell]:not(.dimmed)");
      group.classList.toggle("filtered-out", empty);
      if (active && !empty) group.querySelectorAll("details:has([data-cell])").forEach((part) => { part.open = true; });
    }
    form.querySelector("output").textContent = active ? found.size + " of " + all : "";
  };
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  apply();
}

const keyOf = (row, column) => {
  const cell = row.cells[column];
  return cell?.dataset.key === undefined ? NaN : Number(cell.dataset.key);
};
const textOf = (row, column) => {
  const cell = row.cells[column];
  return cell ? cell.dataset.text ?? cell.textContent.trim() : "";
};
for (const table of document.querySelectorAll(".sorts")) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      table.querySelectorAll("[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...body.rows];
      if (rows.some((row) => !isNaN(keyOf(row, column)))) {
        rows.sort((a, b) => {
          const [x, y] = [keyOf(a, column), keyOf(b, column)];
          if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y); // what has no number stays at the end
          return up ? x - y : y - x;
        });
      } else {
        rows.sort((a, b) => (up ? 1 : -1) * textOf(a, column).localeCompare(textOf(b, column)));
      }
      body.append(...rows);
    });
  });
}
