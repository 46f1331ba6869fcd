"""Turn plan.txt into the TOML plan of merge_modules.py: python plan_to_toml.py plan.txt ROOT [PACKAGE,…] > plan.toml."""

import pathlib
import sys

pkg = None
out = []
n = 0
seen = set()
root = pathlib.Path(sys.argv[2])
only = set(sys.argv[3].split(",")) if len(sys.argv) > 3 else None


def exists(m):
    return (root / (m.replace(".", "/") + ".py")).exists() or (root / m.replace(".", "/") / "__init__.py").exists()


for line in open(sys.argv[1]):
    line = line.strip()
    if not line or line.startswith("#"):
        continue
    if line.startswith("@"):
        pkg = line[1:].strip()
        continue
    left, _, doc = line.partition("|")
    t, _, src = left.partition("=")
    src = [f"qbench.{pkg}.{x}" for x in src.split()]
    seen |= set(src)
    if only and pkg not in only:
        continue
    missing = [x for x in src if not exists(x)]
    if missing:
        print("missing", missing, file=sys.stderr)
    src = [x for x in src if x not in missing]
    if not src:
        continue
    n += 1
    t = t.strip()
    package = t.endswith("/")
    t = t.rstrip("/")
    out.append(
        ("[[module]]\npackage = true\n" if package else "[[module]]\n")
        + f'into = "qbench.{pkg}.{t}"\nfrom = {src!r}\n'.replace("'", '"')
        + (f"doc = {chr(34)}{doc.strip()}{chr(34)}\n" if doc.strip() else "")
    )
for p in sorted((root / "qbench").rglob("*.py")):
    if p.name == "__init__.py":
        continue
    m = ".".join(p.relative_to(root).with_suffix("").parts)
    if m.count(".") > 1 and m not in seen and "zoo" not in m:
        print("unplanned", m, file=sys.stderr)
print("\n".join(out))
print(n, "targets", file=sys.stderr)
