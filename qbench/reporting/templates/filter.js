// Filter. The page shows everything without this script, which only helps to find a cell.
// A row names its cells in its first columns: model, backend and schemas; or schema alone, on the page of a model.
for (const row of document.querySelectorAll(".all tbody tr, .pairs tbody tr, .still tr:has(td)")) {
  const small = row.closest(".pairs") && row.querySelector("th small");
  const texts = small
    ? [row.cells[0].firstChild.textContent, ...small.textContent.split(" · ")]
    : [...row.cells].map((field) => field.textContent);
  const { backend } = row.parentNode.dataset;
  const named = backend ? [document.querySelector("h1").textContent, backend, texts[0]] : texts;
  const backends = named[1].split(", ");
  const cells = named[2].split(", ").flatMap((schema) => backends.map((one) => `${named[0]}::${one}+${schema}`));
  row.dataset.cell = cells.join("|");
  const ended = [...row.querySelectorAll(".outcome")].at(-1); // of two runs the newer
  row.dataset.outcome = ended.textContent.replace(" (carried)", "").split(" ").at(-1);
  if (ended.classList.contains("o-red")) row.dataset.red = "1";
}
const form = document.querySelector(".filter");
if (form) {
  const cells = [...document.querySelectorAll("[data-cell]")];
  const all = new Set(cells.flatMap((cell) => cell.dataset.cell.split("|"))).size;
  const groups = [...document.querySelectorAll("[data-group]")].reverse(); // the inner ones first
  const apply = () => {
    const words = form.elements.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const outcome = form.elements.outcome.value;
    const active = words.length > 0 || outcome !== "";
    const found = new Set();
    for (const cell of cells) {
      const names = cell.dataset.cell.toLowerCase().split("|");
      const ended = !outcome || (outcome === "red" ? "red" in cell.dataset : cell.dataset.outcome === outcome);
      const fits = names.filter((name) => ended && words.every((word) => name.includes(word)));
      fits.forEach((name) => found.add(name));
      cell.classList.toggle("dimmed", !fits.length);
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
