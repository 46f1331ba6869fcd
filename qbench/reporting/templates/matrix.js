// A field of a matrix is named by its row, its table and the head of its column; the filter reads the name.
for (const table of document.querySelectorAll(".matrix")) {
  const heads = [...table.tHead.rows[0].cells].map((head) => head.textContent);
  for (const row of table.tBodies[0].rows) {
    const model = row.querySelector("a").textContent;
    for (const field of row.querySelectorAll(".m")) {
      field.dataset.cell = `${model}::${table.dataset.backend}+${heads[field.cellIndex]}`;
      field.dataset.outcome ??= "passed";
      if (field.classList.contains("red")) field.dataset.red = "1";
    }
  }
}
