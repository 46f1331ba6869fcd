// Sort a table by the column whose head is pressed: by the first number of each field, or by its words.
const numberOf = (row, column) => {
  const field = row.cells[column];
  const shown = field?.dataset.key ?? field?.textContent.replaceAll(",", "").replaceAll("\u2212", "-") ?? "";
  return Number(shown.match(/-?\d+(\.\d+)?(e[-+]\d+)?/)?.[0] ?? NaN);
};
const wordsOf = (row, column) => row.cells[column]?.textContent ?? "";
for (const table of document.querySelectorAll(".sorts")) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    head.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      table.querySelectorAll("[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...body.rows];
      if (head.classList.contains("num")) {
        rows.sort((a, b) => {
          const [x, y] = [numberOf(a, column), numberOf(b, column)];
          if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y); // what has no number stays at the end
          return up ? x - y : y - x;
        });
      } else {
        rows.sort((a, b) => (up ? 1 : -1) * wordsOf(a, column).localeCompare(wordsOf(b, column)));
      }
      body.append(...rows);
    });
  });
}
