// Names that the page explains have their line as a title, wherever they are.
const meanings = new Map([...document.querySelectorAll(".glossary dt")].map((name) => [name.textContent, name.nextSibling.textContent]));
if (meanings.size) {
  for (const place of document.querySelectorAll("th, td, h3, small, .slug, .which, .others span")) {
    const lines = place.textContent.split(/[ ,\u00a0]+/).flatMap((word) => {
      const [name, variant] = word.split("+");
      return [word, name, variant && "+" + variant].filter((one, at, all) => meanings.has(one) && all.indexOf(one) === at).map((one) => `${one}: ${meanings.get(one)}`);
    });
    if (lines.length && !place.title) place.title = lines.join("\n");
  }
}
