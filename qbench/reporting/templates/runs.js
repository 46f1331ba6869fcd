// Two columns of the list of runs mark those to compare on the compare page.
const rows = [...document.querySelectorAll("[data-run]")];
const link = document.querySelector(".pick a");
if (link) {
  const page = link.getAttribute("href");
  const chosen = { Before: rows[1], Now: rows[0] };
  const lead = () => { link.href = `${page}#${chosen.Before.dataset.run}..${chosen.Now.dataset.run}`; };
  for (const name of ["Before", "Now"]) {
    const head = document.createElement("th");
    head.scope = "col";
    head.textContent = name;
    rows[0].closest("table").tHead.rows[0].append(head);
    for (const row of rows) {
      const mark = document.createElement("input");
      mark.type = "radio";
      mark.name = name;
      mark.checked = chosen[name] === row;
      mark.setAttribute("aria-label", `${name}: ${row.cells[0].textContent}`);
      mark.addEventListener("change", () => { chosen[name] = row; lead(); });
      row.insertCell().append(mark);
    }
  }
  lead();
  link.parentNode.hidden = false;
  rows[0].closest(".scroll").before(link.parentNode);
}
