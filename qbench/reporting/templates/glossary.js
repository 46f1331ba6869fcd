// Names that the page explains have their line as a title, wherever they are.
const meanings = new Map([...document.querySelectorAll(".glossary dt")].map((name) => [name.textContent, name.nextSibling.textContent]));
for (const place of document.querySelectorAll("th, td, h3, small, .slug, .which, .others span")) {
  const known = place.textContent.split(/[ ,+@\u00a0]+/).filter((word) => meanings.has(word));
  if (known.length && !place.title) place.title = known.map((word) => word + ": " + meanings.get(word)).join("\n");
}
