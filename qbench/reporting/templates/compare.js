// Two runs of the reader's choice: the page holds what differs between the newest runs, and draws the table itself.
const picker = document.querySelector(".choose");
if (picker) {
  const { runs, words, metrics, cells } = choice;
  const [before, now] = picker.querySelectorAll("select");
  runs.toReversed().forEach(([id, time, commit]) => {
    for (const list of [before, now]) list.append(new Option([time, commit].filter(Boolean).join(" · ") || id, id));
  });
  const place = (id) => runs.findIndex((run) => run[0] === id);
  const stateAt = ([, , , stretches, states], run) => {
    let number = -1;
    for (let at = 0; at < stretches.length && stretches[at] <= run; at += 2) number = stretches[at + 1];
    return states[number];
  };
  const movedText = ([, unit, lower], change) => {
    const size = unit === "%" ? (Math.sign(change) * Math.round(1e4 * Math.abs(change) + 1e-7) / 100).toFixed(2) + " pp" : Number(change.toPrecision(5)) + (unit && " " + unit);
    if (!change) return unit === "%" ? "0.00 pp" : ("+0 " + unit).trim();
    return (change > 0 ? "+" : "") + size.replace("-", "\u2212") + (change > 0 === Boolean(lower) ? " worse" : " better");
  };
  const relate = (old, fresh) => {
    if (!old || !fresh) return ["only in the " + (old ? "old" : "new") + " run", ""];
    if (old[2] < 0 || fresh[2] < 0) return ["incomparable", "not measured in the " + (old[2] < 0 ? "old" : "new") + " run"];
    if (old[3] !== fresh[3]) return ["incomparable", "other samples or labels"];
    const same = old === fresh || (old[4] === fresh[4] && old[5].every(([metric, , value]) => fresh[5].every(([other, , after]) => other !== metric || after === value)));
    return [same ? "same" : "changed", old[2] === fresh[2] ? "" : `${words[old[2]]} → ${words[fresh[2]]}`];
  };
  const field = (text, style, name = "td") => {
    const part = document.createElement(name);
    part.className = style;
    part.append(...[text].flat());
    return part;
  };
  const outcome = (state) => field(words[state[0]], state[1] ? "outcome o-red" : "outcome o-" + words[state[0]].split(" ").at(-1), "span");
  const rowOf = ([model, backend, column], old, fresh, [relation, why]) => {
    const row = document.createElement("tr");
    const head = field([model, field(`${backend} · ${column}`, "", "small")], "", "th");
    head.scope = "row";
    const sides = old && fresh && old[0] === fresh[0] ? [outcome(fresh)] : [old && outcome(old), old && fresh && " → ", fresh && outcome(fresh)].filter(Boolean);
    const then = new Map((old?.[5] ?? []).map(([metric, text, value]) => [metric, [text, value]]));
    const after = fresh?.[5].length ? fresh[5] : old?.[5] ?? [];
    const moved = ["same", "changed"].includes(relation) ? after.filter(([metric, , value]) => then.has(metric) && then.get(metric)[1] !== value) : [];
    const shown = moved.includes(after[0]) ? after.slice(0, 1) : [...after.slice(0, 1), ...moved];
    const lines = (write) => shown.map((one, at) => field(write(one), "", at ? "small" : "span"));
    const change = ([metric, , value]) => (["same", "changed"].includes(relation) && then.has(metric) ? movedText(metrics[metric], value - then.get(metric)[1]) : "");
    row.append(head, field(relation, ""), field(sides, ""), field(lines(([metric]) => metrics[metric][0]), ""));
    row.append(field(lines(([metric]) => then.get(metric)?.[0] ?? ""), "num"), field(lines(([, text]) => (fresh ? text : "")), "num"));
    row.append(field(lines(change), "num strong"), field(why, "words"));
    return row;
  };
  const draw = () => {
    const [first, second] = [place(before.value), place(now.value)];
    const found = cells.map((cell) => [cell, stateAt(cell, first), stateAt(cell, second)]).filter(([, old, fresh]) => old || fresh).map((one) => [...one, relate(one[1], one[2])]);
    const differ = found.filter(([, old, fresh, [relation]]) => (relation !== "same" && !(relation === "incomparable" && old[2] < 0 && fresh[2] < 0)) || old[0] !== fresh[0]);
    const order = ["changed", "only in the new run", "only in the old run", "incomparable", "same"];
    differ.sort((a, b) => order.indexOf(a[3][0]) - order.indexOf(b[3][0]));
    const table = document.querySelector("#chosen table");
    table.tBodies[0].replaceChildren(...differ.map((one) => rowOf(...one)));
    document.querySelector("#chosen .say").textContent = `${differ.length} of ${found.length} cells differ; ${found.length - differ.length} have the same answers and the same outcome, or were measured by neither run.`;
    document.querySelector("#chosen").hidden = false;
    for (const part of document.querySelectorAll("#news, #same, main > .banner, .top .tallies")) part.hidden = true;
    [first, second].forEach((run, side) => {
      const facts = [runs[run][1] + (runs[run][4] ? "" : " (incomplete)"), runs[run][2], runs[run][3], runs[run][0]];
      const list = document.querySelectorAll(".pair dl")[side];
      list.querySelector("dt").textContent = side ? "Now" : "Before";
      list.querySelectorAll("dd").forEach((part, at) => { part.textContent = facts[at]; });
    });
  };
  const named = () => {
    const ids = decodeURIComponent(location.hash.slice(1)).split("..");
    if (ids.length !== 2 || ids.some((id) => place(id) < 0)) return;
    [before.value, now.value] = ids;
    draw();
  };
  const shown = picker.dataset.runs.split("..");
  before.value = shown[0];
  now.value = shown[1];
  picker.addEventListener("change", () => { location.hash = `${before.value}..${now.value}`; });
  addEventListener("hashchange", named);
  picker.hidden = false;
  named();
}
